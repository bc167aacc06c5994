/** The outline of a pane: a menu of its blocks, filtered by typing. */

import type { OutlineItem } from "../code/fold-ranges";
import { Picker } from "../controls/picker";

interface OutlineProps {
  label: string;
  /** Null while the outline is closed. */
  items: readonly OutlineItem[] | null;
  /** The block that is marked at first. */
  here: string;
  /** Returns the right column of a row. */
  detailOf: (item: OutlineItem) => string;
  /** Returns the class of the swatch of a block. */
  classOf: (path: string) => string;
  choose: (item: OutlineItem) => void;
  /** `byKey` is false if the focus has left already. */
  close: (byKey: boolean) => void;
}

export function Outline({ here, detailOf, classOf, ...props }: OutlineProps) {
  return (
    <Picker
      {...props}
      noun="block"
      look="mnb-outline"
      matches={({ path }, needle) => path.toLowerCase().includes(needle)}
      isHere={({ path }) => path === here}
      rowOf={(item, isFiltered) => ({
        label: (
          <>
            <i class={`mnb-swatch ${classOf(item.path)}`} />
            {/* A filtered list shows full paths, because outer groups may be missing. */}
            {isFiltered ? item.path : item.path.slice(item.path.lastIndexOf("/") + 1)}
          </>
        ),
        title: item.path,
        detail: detailOf(item),
        ...(isFiltered ? {} : { depth: item.depth }),
      })}
    />
  );
}
