/** The search across the diffs of all passes: the kernel finds the lines, and the keys step through them. */

import { batch, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { handled } from "../dom/events";
import { counted, grouped } from "../dom/format";
import { IconButton, useElapsed, useStart } from "../dom/view";
import { errorOf } from "../kernel/messages";
import type { Store } from "../store/store";

const PAUSE_MS = 250;
const GONE = "Not connected to the kernel, so passes cannot be searched.";

/** The matches of a search; `lines` is null until the kernel has answered. */
export interface PassMatches {
  /** "" without a search. */
  query: string;
  /** The matching lines by pass. */
  lines: ReadonlyMap<number, readonly number[]> | null;
  /** Number of matches; `lines` may have fewer. */
  total: number;
  /** The current match, an index of `matchesOf`; -1 before the first step. */
  at: number;
}

export const NO_MATCHES: PassMatches = { query: "", lines: null, total: 0, at: -1 };

type Match = [number: number, line: number];

/** Return the number of a pass and the line of each match. */
function matchesOf({ lines }: PassMatches): Match[] {
  return [...(lines ?? [])].flatMap(([number, found]) => found.map((line): Match => [number, line]));
}

/** Return the number of matches in a pass, or null without a search. */
export function countIn({ query, lines }: PassMatches, number: number): number | null {
  return query && lines ? (lines.get(number)?.length ?? 0) : null;
}

/** Return the line of the current match if it is in a pass, else 0. */
export function lineIn(matches: PassMatches, number: number): number {
  const match = matchesOf(matches)[matches.at];
  return match?.[0] === number ? match[1] : 0;
}

/** Move to the first match of a pass that was selected otherwise, so that the next step continues from there. */
export function entered(matches: PassMatches, number: number): PassMatches {
  const first = lineIn(matches, number) ? -1 : matchesOf(matches).findIndex(([pass]) => pass === number);
  return first < 0 ? matches : { ...matches, at: first };
}

interface PassSearchProps {
  store: Store;
  /** Version of the listed passes. */
  version: number;
  matches: PassMatches;
  take: (matches: PassMatches) => void;
  /** Shows a match in a pass. */
  go: (number: number) => void;
}

export function PassSearch({ store: { kernel }, version, matches, take, go }: PassSearchProps) {
  const text = useSignal("");
  const failure = useSignal("");
  /** Whether the kernel has not answered yet. */
  const isSent = useSignal(false);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const latest = useRef({ matches, version, take });
  latest.current = { matches, version, take };
  const elapsed = useElapsed(isSent.value);
  const fail = (why: string) => {
    [isSent.value, failure.value] = [false, why];
  };
  const search = (query: string) =>
    batch(() => {
      take({ ...NO_MATCHES, query });
      isSent.value = query !== "" && !kernel.isGone;
      failure.value = query && kernel.isGone ? GONE : "";
      if (isSent.value)
        kernel.latest("search_passes", "search_passes", { text: query }, (reply) => {
          if (!reply.ok && query === latest.current.matches.query) fail(errorOf(reply) ?? GONE);
        });
    });
  useStart(() => {
    const leave = kernel.receive(
      "pass_matches",
      ({ version, text: query, total }, found) => {
        if (query !== latest.current.matches.query) return;
        isSent.value = false;
        // The search is repeated when the new passes are read.
        if (version === latest.current.version) latest.current.take({ query, total, lines: new Map(found), at: -1 });
      },
      fail,
    );
    return () => {
      clearTimeout(timer.current);
      leave();
    };
  });
  useLayoutEffect(() => {
    if (matches.query) search(matches.query);
  }, [version]);
  const list = matchesOf(matches);
  const { length } = list;
  const step = (by: 1 | -1) => {
    if (!length) return;
    // Before the first step, no match is current.
    const at = matches.at < 0 ? (by > 0 ? 0 : length - 1) : (matches.at + by + length) % length;
    take({ ...matches, at });
    go(list[at]![0]);
  };
  const type = (query: string) => {
    text.value = query;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => search(query.trim()), query.trim() ? PAUSE_MS : 0);
  };
  const press = (event: KeyboardEvent) => {
    text.value = (event.currentTarget as HTMLInputElement).value;
    const query = text.value.trim();
    if (event.key === "Enter") {
      clearTimeout(timer.current);
      if (query !== matches.query) search(query);
      else step(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape" && text.value) {
      text.value = "";
      search("");
    } else return;
    handled(event);
  };
  const cut = matches.total > length ? `, the first ${grouped(length)} listed` : "";
  const whole = `${counted(matches.total, "match")} in ${counted(matches.lines?.size ?? 0, "pass")}${cut}`;
  const found = length === 0 ? "No matches" : matches.at < 0 ? whole : `${grouped(matches.at + 1)} of ${whole}`;
  return (
    <div class="mnb-row" role="search" aria-label="Passes">
      <input
        type="search"
        class="mnb-input mnb-pass-search"
        placeholder="Search all passes"
        aria-label="Search the diffs of all passes. Enter: next match; Shift Enter: previous one"
        autocomplete="off"
        spellcheck={false}
        data-mnb-action="passes.search"
        value={text.value}
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={press}
      />
      <IconButton
        icon="up"
        label="Previous match (Shift Enter)"
        action="passes.previous"
        off={!length}
        onClick={() => step(-1)}
      />
      <IconButton icon="down" label="Next match (Enter)" action="passes.next" off={!length} onClick={() => step(1)} />
      <span class="mnb-pass-found" role="status">
        {failure.value || (elapsed ? `Searching: ${elapsed}` : matches.query && matches.lines ? found : "")}
      </span>
    </div>
  );
}
