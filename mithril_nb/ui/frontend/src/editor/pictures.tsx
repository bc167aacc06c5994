/** A small picture for each kind of blocks, as a path in a square of 16. */

/** The first pattern that matches family and kind decides. */
const PICTURES: readonly (readonly [RegExp, string])[] = [
  [/ Linear$/, "M3 3 13 6M3 3l10 8M3 13 13 6M3 13l10-2M3 8l10-2M3 8l10 3"],
  [/ Conv/, "M2 2h12v12H2zM2 6h12M2 10h12M6 2v12M10 2v12"],
  [/ (Unem|Em)bedding/, "M2 3h4v10H2zM6 8h3M9 5h5v6H9z"],
  [/ Dropout/, "M4 4h.1M12 4h.1M8 8h.1M4 12h.1M12 12h.1M7 3l2 2M9 3 7 5M11 7l2 2M13 7l-2 2"],
  [/ (RNN|LSTM|GRU)/, "M5 6h6v6H5zM8 6c0-5 6-3 6 2h-3M2 9h3"],
  [/ (Relu|LeakyRelu|HardTanh|Relu6)/, "M2 12h6l5-9"],
  [/ (Gelu|SiLU|Mish|.*elu|Softplus|HardSwish)$/i, "M2 11c3 2 5 1 6-1l5-7"],
  [/ (Log)?Softmax/, "M3 13v-3M7 13V3M11 13V8M14 13H2"],
  [/^Activations/, "M2 13c7 0 5-10 12-10"],
  [/^Norms/, "M2 13c4 0 4-10 6-10s2 10 6 10"],
  [/^Pooling/, "M2 2h12v12H2zM6 6h4v4H6z"],
  [/^Attention/, "M8 3 3 13M8 3v10M8 3l5 10M2 13h12"],
  [/^(Composites|Mo|My)/, "M2 2h12v12H2zM5 5h6v2H5zM5 9h6v2H5z"],
  [/ Add$/, "M8 3v10M3 8h10"],
  [/ (Subtract|Negate)$/, "M3 8h10"],
  [/ (MatrixM|M)ultiply$/, "M4 4l8 8M12 4l-8 8"],
  [/ (Floor)?Divide$/, "M3 8h10M8 4v.1M8 12v.1"],
  [/^Arithmetic/, "M3 6h10M3 10h10"],
  [/^Reductions/, "M12 3H4l5 5-5 5h8"],
  [/^Logic/, "M4 4l8 4-8 4"],
  [/^Losses/, "M2 3c3 12 9 12 12 0"],
  [/^Metrics/, "M3 9l4 4 6-9"],
  [/ (Concat|Stack)/, "M2 4h4v8H2zM10 4h4v8h-4zM6 8h4"],
  [/^Shape/, "M2 3h5v10H2zM9 10h5v3H9zM8 6h5l-2-2M13 6l-2 2"],
  [/^Classical/, "M4 11h.1M6 7h.1M9 9h.1M12 4h.1M2 2v12h12"],
  [/^Random/, "M3 3h10v10H3zM6 6h.1M10 10h.1M8 8h.1"],
  [/./, "M3 4h10v8H3z"],
];

export function Picture({ family, kind }: { family: string; kind: string }) {
  const [, path] = PICTURES.find(([pattern]) => pattern.test(`${family} ${kind}`))!;
  return (
    <svg class="mnb-palette-picture" viewBox="0 0 16 16" width={16} height={16} aria-hidden="true">
      <path d={path} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" />
    </svg>
  );
}
