/** Full screen for one part of a widget, or for the whole widget. */

import { attr } from "../dom/dom";
import { IconButton, mount } from "../dom/view";

function labelOf(label: string, isOn: boolean): string {
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

function paint(button: HTMLElement, isOn: boolean): void {
  const label = labelOf(button.dataset["mnbLabel"]!, isOn);
  attr(button, "aria-label", label);
  attr(button, "title", label);
  attr(button, "aria-pressed", String(isOn));
}

/** Fills the screen with a part, or the widget if the page does not allow full screen. The focus stays. */
export class FullScreen {
  private part: HTMLElement | null = null;
  private isOn = false;
  private readonly followBrowser = (): void => {
    // The browser handles Esc itself.
    if (this.isOn && this.wasNative && !this.isNative) this.leave();
    this.wasNative = this.isNative;
  };
  private wasNative = false;

  constructor(
    private readonly root: HTMLElement,
    private readonly main: HTMLElement,
  ) {
    root.addEventListener("mnb-full", (event) => this.toggle(event.target as Element));
    document.addEventListener("fullscreenchange", this.followBrowser);
  }

  destroy(): void {
    document.removeEventListener("fullscreenchange", this.followBrowser);
    this.leave();
  }

  /** Whether a part of the widget fills the screen. */
  get hasPart(): boolean {
    return this.part !== null;
  }

  /** Enter with the part around an element, or the whole widget if there is none; leave if it is shown already. */
  toggle(from: Element): void {
    const part = from.closest<HTMLElement>("[data-mnb-full]");
    if (this.isOn && part === this.part) this.leave();
    else this.enter(part && this.main.contains(part) ? part : null);
  }

  /** Return whether full screen was left. */
  leave(): boolean {
    if (!this.isOn) return false;
    this.isOn = false;
    this.part = null;
    this.update();
    if (this.isNative) void document.exitFullscreen().catch(() => undefined);
    return true;
  }

  /** Hide everything but the part; call again after parts have moved. */
  update(): void {
    const { root, main, part } = this;
    for (const one of root.querySelectorAll("[data-mnb-away]")) one.removeAttribute("data-mnb-away");
    for (const one of root.querySelectorAll("[data-mnb-filling]")) one.removeAttribute("data-mnb-filling");
    attr(root, "data-mnb-screen", this.isOn);
    for (let at = part; at && at !== main; at = at.parentElement) {
      attr(at, "data-mnb-filling", true);
      for (const other of at.parentElement!.children) if (other !== at) attr(other, "data-mnb-away", true);
    }
    for (const button of root.querySelectorAll<HTMLElement>('[data-mnb-action^="full."]')) {
      const own = button.closest("[data-mnb-full]");
      paint(button, this.isOn && (own === part || (part !== null && own === null)));
    }
  }

  private get isNative(): boolean {
    return (this.root.getRootNode() as Document | ShadowRoot).fullscreenElement === this.root;
  }

  private enter(part: HTMLElement | null): void {
    this.isOn = true;
    this.part = part;
    this.update();
    if (!this.isNative) void this.root.requestFullscreen?.().catch(() => undefined);
  }
}
