/** Full screen for one part of a widget, or for the whole widget. */

import { attr } from "../dom/dom";
import { IconButton, mount } from "../dom/view";

function labelOf(label: string, isOn: boolean) {
  return isOn ? "Leave full screen (Esc)" : `Show ${label} in full screen (E)`;
}

/** The button of a part with the attribute `data-mnb-full`; `action` distinguishes the buttons of a widget. */
export function FullButton({ label, action }: { label: string; action: string }) {
  const press = (event: Event): void =>
    void event.currentTarget!.dispatchEvent(new CustomEvent("mnb-full", { bubbles: true }));
  return (
    <IconButton
      icon="full"
      label={labelOf(label, false)}
      action={`full.${action}`}
      aria-pressed={false}
      data-mnb-label={label}
      onClick={press}
    />
  );
}

/** Create the button for a part that is not a component. */
export function fullButton(label: string, action: string): HTMLElement {
  return mount(<FullButton label={label} action={action} />).root;
}

function paint(button: HTMLElement, isOn: boolean) {
  const label = labelOf(button.dataset["mnbLabel"]!, isOn);
  attr(button, "aria-label", label);
  attr(button, "title", label);
  attr(button, "aria-pressed", String(isOn));
}

/** Fills the screen with a part, or the widget if the page does not allow full screen. The focus stays. */
export function createFullScreen(root: HTMLElement, main: HTMLElement) {
  let filling: HTMLElement | null = null;
  let isOn = false;
  const followBrowser = () => {
    // The browser handles Esc itself.
    if (isOn && wasNative && !isNative()) leave();
    wasNative = isNative();
  };
  let wasNative = false;
  root.addEventListener("mnb-full", (event) => toggle(event.target as Element));
  document.addEventListener("fullscreenchange", followBrowser);

  function destroy() {
    document.removeEventListener("fullscreenchange", followBrowser);
    leave();
  }

  /** Enter with the part around an element, or the whole widget if there is none; leave if it is shown already. */
  function toggle(from: Element) {
    const part = from.closest<HTMLElement>("[data-mnb-full]");
    if (isOn && part === filling) leave();
    else enter(part && main.contains(part) ? part : null);
  }

  /** Return whether full screen was left. */
  function leave() {
    if (!isOn) return false;
    isOn = false;
    filling = null;
    update();
    if (isNative()) void document.exitFullscreen().catch(() => undefined);
    return true;
  }

  /** Hide everything but the part; call again after parts have moved. */
  function update() {
    const part = filling;
    for (const name of ["data-mnb-away", "data-mnb-filling"])
      for (const element of root.querySelectorAll(`[${name}]`)) element.removeAttribute(name);
    attr(root, "data-mnb-screen", isOn);
    for (let at = part; at && at !== main; at = at.parentElement) {
      attr(at, "data-mnb-filling", true);
      for (const other of at.parentElement!.children) if (other !== at) attr(other, "data-mnb-away", true);
    }
    for (const button of root.querySelectorAll<HTMLElement>('[data-mnb-action^="full."]')) {
      const own = button.closest("[data-mnb-full]");
      paint(button, isOn && (own === part || (part !== null && own === null)));
    }
  }

  function isNative() {
    return (root.getRootNode() as Document | ShadowRoot).fullscreenElement === root;
  }

  function enter(part: HTMLElement | null) {
    isOn = true;
    filling = part;
    update();
    if (!isNative()) void root.requestFullscreen?.().catch(() => undefined);
  }

  return {
    destroy,
    /** Whether a part of the widget fills the screen. */
    get hasPart() {
      return filling !== null;
    },
    toggle,
    leave,
    update,
  };
}

export type FullScreen = ReturnType<typeof createFullScreen>;
