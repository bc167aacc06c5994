/** Draws or types the input of the model: an image as a drawing, and all numbers in a text field. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { followPointer } from "../dom/events";
import { Button } from "../dom/view";
import type { EditedInput } from "../kernel/contract";

/** Smaller sides are hardly an image. */
const LEAST_SIDE = 4;
/** Smaller images are drawn pixel by pixel. */
const THICK_FROM = 16;

/** Return height and width of an image with one channel. */
export function sidesOf({ shape }: EditedInput): [number, number] | null {
  const [height, width, ...others] = shape.filter((size) => size !== 1);
  return others.length || !width || height! < LEAST_SIDE || width < LEAST_SIDE ? null : [height!, width];
}

export function lines({ shape, numbers }: EditedInput): string {
  const width = shape.at(-1) || 1;
  const texts = numbers.map((number) => String(Number(number.toPrecision(6))));
  return Array.from({ length: texts.length / width }, (_, row) =>
    texts.slice(row * width, (row + 1) * width).join(" "),
  ).join("\n");
}

/** Return the numbers in a text, or what is wrong with it. */
export function parsed(text: string, count: number): number[] | string {
  const words = text.split(/[\s,;[\]]+/).filter(Boolean);
  const wrong = words.find((word) => !Number.isFinite(Number(word)));
  if (wrong !== undefined) return `“${wrong}” is not a number.`;
  return words.length === count ? words.map(Number) : `The input has ${count} numbers, the text ${words.length}.`;
}

/** Return an image after a stroke over a pixel; a thick stroke covers half of the pixels beside it, too. */
export function stroked(
  numbers: readonly number[],
  [height, width]: [number, number],
  x: number,
  y: number,
  ink: number,
) {
  const [least, most] = [Math.min(0, ...numbers), Math.max(1, ...numbers)];
  const drawn = [...numbers];
  const near = height < THICK_FROM || width < THICK_FROM ? 0 : 1;
  for (let dy = -near; dy <= near; dy++) {
    for (let dx = -near; dx <= near; dx++) {
      const [row, column] = [y + dy, x + dx];
      if (row < 0 || row >= height || column < 0 || column >= width) continue;
      const at = row * width + column;
      const share = dx || dy ? 0.5 : 1;
      const [now, goal] = [drawn[at]!, ink ? most : least];
      const next = now + share * (goal - now);
      drawn[at] = ink ? Math.max(now, next) : Math.min(now, next);
    }
  }
  return drawn;
}

function Drawing({ name, input, change }: { name: string; input: EditedInput; change: (numbers: number[]) => void }) {
  const element = useRef<HTMLCanvasElement>(null);
  const current = useRef(input.numbers);
  current.current = input.numbers;
  const [height, width] = sidesOf(input)!;
  useLayoutEffect(() => {
    const context = element.current!.getContext("2d");
    if (!context) return;
    const { numbers } = input;
    const [least, most] = [Math.min(0, ...numbers), Math.max(1, ...numbers)];
    const image = context.createImageData(width, height);
    numbers.forEach((number, at) => {
      const grey = 255 * ((number - least) / (most - least));
      image.data.set([grey, grey, grey, 255], 4 * at);
    });
    context.putImageData(image, 0, 0);
  }, [input]);
  const stroke = (event: PointerEvent, ink: number) => {
    const box = element.current!.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * width);
    const y = Math.floor(((event.clientY - box.top) / box.height) * height);
    current.current = stroked(current.current, [height, width], x, y, ink);
    change(current.current);
  };
  return (
    <canvas
      ref={element}
      class="mnb-sketch"
      width={width}
      height={height}
      role="img"
      aria-label={`Input ${name}, ${height} × ${width} pixels. Draw with the mouse; the field below has the numbers.`}
      title="Draw; Shift erases"
      data-mnb-action="values.draw"
      onPointerDown={(event) => {
        const ink = event.shiftKey ? 0 : 1;
        stroke(event, ink);
        followPointer(event.currentTarget, event, (moved) => stroke(moved, ink));
      }}
    />
  );
}

interface InputProps {
  name: string;
  input: EditedInput;
  /** What the kernel shows: the sample, or `null` for the numbers of the user. */
  sample: number | null;
  feed: (numbers: number[]) => void;
}

function Input({ name, input, sample, feed }: InputProps) {
  const problem = useSignal("");
  // What the user drew, of which the kernel may have computed an earlier state.
  const draft = useSignal<number[] | null>(null);
  useLayoutEffect(() => {
    if (sample !== null) draft.value = null;
  }, [sample]);
  const change = (numbers: number[]) => {
    draft.value = numbers;
    problem.value = "";
    feed(numbers);
  };
  const shown = draft.value?.length === input.numbers.length ? { ...input, numbers: draft.value } : input;
  const type = ({ currentTarget }: { currentTarget: HTMLTextAreaElement }) => {
    const numbers = parsed(currentTarget.value, input.numbers.length);
    if (typeof numbers === "string") problem.value = numbers;
    else change(numbers);
  };
  return (
    <div class="mnb-own-input">
      {sidesOf(input) && <Drawing name={name} input={shown} change={change} />}
      <textarea
        class="mnb-field"
        rows={Math.min(4, lines(input).split("\n").length)}
        wrap="off"
        spellcheck={false}
        aria-label={`Numbers of input ${name}, row by row`}
        aria-invalid={problem.value !== ""}
        data-mnb-action="values.type"
        value={lines(shown)}
        onChange={type}
      />
      <p class="mnb-inline-problem" role="alert" hidden={!problem.value}>
        {problem.value}
      </p>
      <Button action="values.clear" onClick={() => change(input.numbers.map(() => 0))}>
        All zero
      </Button>
    </div>
  );
}

export function OwnSample(props: {
  inputs: Record<string, EditedInput>;
  sample: number | null;
  feed: (values: Record<string, number[]>) => void;
}) {
  const names = Object.keys(props.inputs);
  return (
    <details class="mnb-own" hidden={!names.length}>
      <summary data-mnb-action="values.own">Draw or type the input</summary>
      {names.map((name) => (
        <Input
          key={name}
          name={name}
          input={props.inputs[name]!}
          sample={props.sample}
          feed={(numbers) => props.feed({ [name]: numbers })}
        />
      ))}
    </details>
  );
}
