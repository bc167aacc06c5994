/** Return a function that finds an element by selector, or throws an error with the selector. */
export const finderIn =
  (root: () => ParentNode) =>
  <T extends Element = HTMLElement>(selector: string, within: ParentNode = root()): T => {
    const found = within.querySelector<T>(selector);
    if (!found) throw new Error(`no element matches ${selector}`);
    return found;
  };
