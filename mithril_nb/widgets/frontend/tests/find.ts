/** What a test looks for in a page: a miss tells what was looked for. */
export const finderIn =
  (root: () => ParentNode) =>
  <T extends Element = HTMLElement>(selector: string, within: ParentNode = root()): T => {
    const found = within.querySelector<T>(selector);
    if (!found) throw new Error(`nothing is at ${selector}`);
    return found;
  };
