/** A binary heap, which returns the least item first. */
export class Heap<T> {
  private readonly items: T[] = [];

  constructor(private readonly isLess: (a: T, b: T) => boolean) {}

  get size(): number {
    return this.items.length;
  }

  get least(): T | undefined {
    return this.items[0];
  }

  push(item: T): void {
    const { items } = this;
    let at = items.push(item) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!this.isLess(item, items[above]!)) break;
      items[at] = items[above]!;
      at = above;
    }
    items[at] = item;
  }

  pop(): T | undefined {
    const { items } = this;
    const least = items[0];
    const last = items.pop();
    if (items.length === 0 || last === undefined) return least;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      if (below >= items.length) break;
      if (below + 1 < items.length && this.isLess(items[below + 1]!, items[below]!)) below += 1;
      if (!this.isLess(items[below]!, last)) break;
      items[at] = items[below]!;
      at = below;
    }
    items[at] = last;
    return least;
  }
}
