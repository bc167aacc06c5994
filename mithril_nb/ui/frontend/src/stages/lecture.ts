/** A lecture, in the explorer and in saved pages: the moments of a tour, a spotlight, and a hidden second stage. */

import { attr, h, text } from "../dom/dom";
import { handled, hasModifier } from "../dom/events";
import { isTyping } from "../dom/focus";
import type { MomentData } from "../kernel/contract";
import { type Anchor, blockAnchors, selectionOf, type StageText } from "../store/links";

interface Parts {
  /** Has the attributes that dim and hide lines. */
  root: HTMLElement;
  moments: readonly MomentData[];
  texts: () => ReadonlyMap<string, StageText>;
  pins: () => readonly Anchor[];
  pin: (anchors: Anchor[]) => void;
  showStages: (stages: string[]) => void;
  /** Move to the next (1) or previous (-1) linked line. */
  walk: (direction: 1 | -1) => void;
  /** Called when the lecture starts or ends. */
  turn: (isOn: boolean) => void;
  /** Called when the spotlight starts or ends. */
  dim?: (isOn: boolean) => void;
}

function button(label: string, title: string, act: () => void) {
  return h(
    "button",
    { type: "button", class: "mnb-toggle", title, "aria-label": label.length > 1 ? null : title, onclick: act },
    label,
  );
}

export function createLecture({ root, moments, texts, pins, pin, showStages, walk, turn, dim }: Parts) {
  let [isOn, isLit, isHidden] = [false, false, false];
  let at = 0;
  const toggle = button("Lecture", "Large: the stages, with keys for a presenter (5)", () => set(!isOn));
  const spotlight = button("Spotlight", "Dim all but the selected block (s)", () => light(!isLit));
  const curtain = button("Hide", "Hide or reveal the second stage (h)", () => hide(!isHidden));
  const tools = h("span", { class: "mnb-lecture", hidden: true }, spotlight, curtain);
  if (moments.length)
    tools.append(
      button("‹", "Previous moment (,)", () => go(-1)),
      button("›", "Next moment (.)", () => go(1)),
    );
  const caption = h("p", { class: "mnb-caption", role: "status", hidden: true });
  const keys: Record<string, () => void> = {
    s: () => light(!isLit),
    h: () => hide(!isHidden),
    "]": () => walk(1),
    "[": () => walk(-1),
  };
  if (moments.length) {
    keys["."] = keys["PageDown"] = () => go(1); // Page Down and Page Up are the keys of presenters
    keys[","] = keys["PageUp"] = () => go(-1);
  }
  attr(toggle, "aria-pressed", "false");
  attr(toggle, "data-mnb-action", "lecture");
  light(false);

  /** Start or end the lecture; it starts with the moment that was shown last, or with another. */
  function set(on: boolean, moment = at) {
    if (on === isOn && moment === at) return;
    [isOn, at] = [on, moment];
    attr(toggle, "aria-pressed", String(isOn));
    tools.hidden = !isOn;
    caption.hidden = !isOn || !moments.length;
    light(false);
    hide(false);
    turn(isOn);
    if (isOn && moments.length) go(0);
  }

  /** Dim all lines outside of the selected blocks, or end this. */
  function light(on: boolean) {
    const blocks = on ? selectionOf(texts(), pins()) : [];
    if (blocks.length) pin(blockAnchors(blocks));
    isLit = on && pins().length > 0;
    attr(root, "data-mnb-spot", isLit);
    attr(spotlight, "aria-pressed", String(isLit));
    dim?.(isLit);
  }

  function hide(on: boolean) {
    isHidden = on;
    attr(root, "data-mnb-hide", on);
    text(curtain, on ? "Reveal" : "Hide");
  }

  /** Show the next (1), previous (-1) or current moment. What it hides is revealed before the next. */
  function go(by: number) {
    if (by > 0 && isHidden) return hide(false);
    const moment = moments[at + by];
    if (!moment) return;
    at += by;
    const { stages, block, equations: ids, caption: words, is_hidden } = moment;
    light(false);
    hide(is_hidden);
    showStages(stages);
    pin(block ? blockAnchors([block]) : ids.length ? [{ kind: "equations", name: ids.join(), ids }] : []);
    text(caption, `${at + 1} / ${moments.length}${words && ` · ${words}`}`);
  }

  /** Follow the selection: without one, nothing is in the light. */
  function follow() {
    if (isLit && !pins().length) light(false);
  }

  /** Handle a key before the other parts do. */
  function key(event: KeyboardEvent) {
    const act = keys[event.key];
    if (!isOn || !act || hasModifier(event) || isTyping(event.target)) return;
    act();
    handled(event);
  }

  return {
    toggle,
    tools,
    caption,
    set,
    follow,
    key,
    get isOn() {
      return isOn;
    },
    get at() {
      return at;
    },
  };
}
