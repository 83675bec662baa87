/* The page of ddl inspect --html: gates, sizes of updates, spectra and extreme tokens of the sublayers. data.result is the
 * object that --json prints; data.figures names its figures. */
"use strict";

const result = data.result;
const sublayers = result.sublayers;
const gated = sublayers.filter((s) => s.histogram);
const labelOf = (s) => `${s.layer} ${s.sub}${s.step_index === undefined ? "" : `.${s.step_index}`}`;
const has = (name) => sublayers.some((s) => isNumber(s[name]));
/* A figure of the sublayer's gate by its kind: "mean", "q05". */
const gateKey = (s, kind) => data.figures.filter((one) => one.kind === kind).map((one) => s[one.name]).find(isNumber);

/* ---- summary ---- */

function summary() {
  const depth = result.depth;
  main.append(facts([
    ["loss (nats)", fixed(result.loss, 4)], ["tokens", count(result.tokens)], ["sequence length", count(result.seq)],
    ["sublayers", String(sublayers.length)],
    result.saved_model ? ["saved model", result.saved_model.name] : null,
    result.force ? ["forced", result.force.join("; ")] : null,
    depth ? ["log |det| over depth", precise(depth.log_det)] : null,
    depth && depth.tokens ? ["singular values over depth", `${precise(depth.sigma_min)} to ${precise(depth.sigma_max)}`] : null,
  ]));
  const lines = sublayers.filter((s) => s.behavior).map((s) => element("li", {}, `layer ${labelOf(s)}: ${s.behavior}`));
  section("Behavior", lines.length ? element("ul", {}, lines)
    : element("p", {}, "No sublayer satisfies a condition of docs/inspect.md: none behaves as skip, overwrite, reflection or a constant."));
}

/* ---- gates ---- */

function gates() {
  if (!gated.length) {
    section("Gates", note("No sublayer of this model has a gate."));
    return;
  }
  const scale = gateScale(gated);
  const spread = chart({
    label: "Gate of each sublayer", height: 300,
    caption: "Mean of the gate over all tokens; the band is from its 5 % to its 95 % quantile.",
  }, () => overSublayers(gated, [{
    name: "mean", value: (s) => gateKey(s, "mean"), low: (s) => gateKey(s, "q05"), high: (s) => gateKey(s, "q95"),
  }], { title: "gate", min: 0, max: scale.high, bounds: "data" }));
  section("Gates", row(spread.node,
    table([
      ...identity(), column("mean", "mean"), column("5 %", "q05"), column("25 %", "q25"), column("50 %", "q50"),
      column("75 %", "q75"), column("95 %", "q95"), column("lowest", "min"), column("highest", "max"),
      ...["skip", "match", "over", "reflect"].map((name) => ({ title: name, cell: (s) => fixed(gateKey(s, name), 3) })),
    ], gated, { caption: "Quantiles of the gate, and shares of tokens" })),
    note("Shares: skip is a gate < 0.1, match 0.9 to 1.1, over > 1.1, reflect > 1.9."));
  section("Gates by position", heatMap({
    label: "Mean gate by sublayer and position", name: "mean gate", scale, xTitle: "position",
    rows: gated.map(labelOf), columns: gated[0].by_position.map((value, i) => i), values: gated.map((s) => s.by_position),
    caption: "Each row is a sublayer, each column a position in the sequence, from 0.",
  }), positionTable());
  section("Histograms of the gates", element("div", { class: "grid" }, gated.map(histogram)),
    note("Share of the tokens in each bin. All charts have the same horizontal axis; the vertical axes differ."));
}

const column = (title, part) => ({ title, cell: (s) => fixed(gateKey(s, part), 3) });
const identity = () => [
  { title: "sublayer", text: true, cell: labelOf },
  { title: "rule", text: true, cell: (s) => (s.update && s.update !== "delta" ? `${s.rule}, ${s.update}` : s.rule) },
];

function positionTable() {
  const rows = gated[0].by_position.map((value, i) => i);
  return dataTable("Mean gate by position", [
    { title: "position", cell: (i) => String(i) }, ...gated.map((s) => ({ title: labelOf(s), cell: (i) => fixed(s.by_position[i], 3) })),
  ], rows);
}

/* A stepped line from edge to edge of the bins. */
function histogram(s) {
  const total = s.histogram.reduce((sum, n) => sum + n, 0) || 1;
  const width = s.gate_max / s.histogram.length;
  const points = s.histogram.map((n, i) => ({ x: i * width, y: (100 * n) / total }));
  points.push({ x: s.gate_max, y: points[points.length - 1].y });
  const drawn = chart({
    height: 150,
    label: `Histogram of the gate of layer ${labelOf(s)}: mean ${fixed(gateKey(s, "mean"), 3)}, 5 % to 95 % quantile ` +
      `${fixed(gateKey(s, "q05"), 3)} to ${fixed(gateKey(s, "q95"), 3)}`,
  }, () => {
    const made = lineChart({ series: [{ name: "tokens, %", points }], x: { title: "gate", min: 0, max: gateScale(gated).high }, y: { min: 0, format: (value) => `${precise(value)} %` }, legend: false });
    Object.assign(made.data.datasets[0], { stepped: "before", fill: "origin", borderWidth: 1, pointRadius: 0,
      backgroundColor: withAlpha(seriesColor(s.sub === "attn" ? 0 : 1), 0.45), borderColor: seriesColor(s.sub === "attn" ? 0 : 1) });
    made.options.scales.x.title.display = false;
    return made;
  });
  drawn.node.prepend(element("h3", {}, `layer ${labelOf(s)}`));
  return drawn.node;
}

/* ---- figures over sublayers ---- */

/* A chart with the sublayers as categories. series: { name, value, low, high }, functions of a sublayer. */
function overSublayers(list, series, y) {
  const made = lineChart({
    series: series.map((one) => ({
      name: one.name,
      points: list.map((s, i) => ({ x: i, y: one.value(s), low: one.low && one.low(s), high: one.high && one.high(s) })),
    })),
    x: { title: "sublayer", min: 0, max: Math.max(1, list.length - 1) }, y,
  });
  const x = made.options.scales.x;
  x.ticks = { stepSize: 1, autoSkip: true, autoSkipPadding: 8, maxRotation: 60, callback: (value) => (list[value] ? labelOf(list[value]) : null) };
  made.options.plugins.tooltip.callbacks.title = (items) => (items.length ? `layer ${labelOf(list[items[0].raw.x])}` : "");
  return made;
}

function updates() {
  const names = data.figures.filter((one) => one.kind === "size").map((one) => one.name).filter(has);
  const all = sublayers.flatMap((s) => names.map((name) => s[name])).filter((value) => value > 0);
  const log = all.length > 0 && Math.max(...all) > 30 * Math.min(...all);
  const sizes = chart({
    label: `Sizes of ${names.join(", ")} by sublayer`, height: 300,
    caption: "Means over tokens, relative to the norm of the state: parts of the step, and the whole step.",
  }, () => overSublayers(sublayers, names.map((name) => ({ name, value: (s) => (log && !(s[name] > 0) ? null : s[name]) })), { title: "relative size", log }));
  section("Sizes of the updates", row(sizes.node, table([
    ...identity(),
    ...data.figures.filter((one) => one.label && has(one.name)).map((one) => ({ title: one.label, cell: (s) => precise(s[one.name]) })),
  ], sublayers, { caption: "Root mean squares of kᵀX − v before and after the step, means of the relative sizes and overlaps, and factors" })));
}

function spectrum() {
  const figure = data.figures.find((one) => one.kind === "shrink" && has(one.name));
  if (!figure) return;
  const list = sublayers.filter((s) => isNumber(s[figure.name]));
  const depth = result.depth;
  const drawn = chart({
    label: "Eigenvalue of the shortcut of each sublayer", height: 260,
    caption: "Mean over tokens of 1 − β‖k‖², the eigenvalue of the shortcut I − β k kᵀ for k: 1 keeps this direction, 0 erases it, −1 reflects it.",
  }, () => overSublayers(list, [{ name: "eigenvalue", value: (s) => s[figure.name] }], { title: "1 − β‖k‖²", min: 1 - gateScale(list).high, max: 1, bounds: "data" }));
  const products = depth && depth.tokens ? chart({
    label: "Singular values of the product of the shortcuts up to each sublayer", height: 260,
    caption: "Means over tokens of the extreme singular values of A_s ⋯ A_1 on the span of k_1 … k_s: how much of the earlier state is left.",
  }, () => overSublayers(list, [
    { name: "largest", value: (s) => s.sigma_max }, { name: "smallest", value: (s) => s.sigma_min },
  ], { title: "singular value" })) : null;
  section("Spectrum over depth", row(drawn.node, products ? products.node : null),
    row(table([
      ...identity(), { title: "1 − β‖k‖²", cell: (s) => precise(s[figure.name]) },
      ...(products ? [{ title: "smallest", cell: (s) => precise(s.sigma_min) }, { title: "largest", cell: (s) => precise(s.sigma_max) }] : []),
    ], list, { caption: "Mean eigenvalue by sublayer, and singular values of the product up to it" }),
    depth ? table([
      { title: "product of all shortcuts", text: true, wrap: true, cell: (row) => row[0] }, { title: "mean", cell: (row) => row[1] },
    ], [["largest singular value", precise(depth.sigma_max)], ["smallest singular value", precise(depth.sigma_min)],
      ["log |det|", precise(depth.log_det)], ["tokens with singular values", count(depth.tokens)]], { caption: "Over depth, means over tokens" }) : null));
}

function channels() {
  const n = sublayers[0].channel_rms.length;
  if (n < 2) return;
  const names = sublayers[0].channel_rms.map((value, j) => j);
  const one = data.columns, column = one.split(" ").pop();
  /* Sublayers differ by more than channels do, so colors are relative to the mean of a row. */
  const scale = { low: 0, middle: 1, high: 2 }, cells = [];
  const cell = (s, j) => {
    const node = element("span", {}, precise(s.channel_rms[j]));
    cells.push([node, (s.channel_rms[j] * n) / s.channel_rms.reduce((sum, value) => sum + value, 0)]);
    return node;
  };
  const sizes = table([
    ...identity(), ...names.map((j) => ({ title: `${column} ${j}`, cell: (s) => cell(s, j) })),
  ], sublayers, { caption: `Root mean square of each ${one} after each sublayer` });
  paintCells(cells.map(([node, value]) => [node.parentNode, value]), scale);
  section(`${one[0].toUpperCase()}${one.slice(1)}s`,
    row(sizes, result.read ? table([
      { title: "read vector", text: true, cell: (row) => row.name }, ...names.map((j) => ({ title: `${column} ${j}`, cell: (row) => fixed(row.values[j], 3) })),
    ], result.read.map((values, l) => ({ name: l < result.read.length - 1 ? `layer ${l}` : "readout", values })), { caption: `How much of each ${column} a layer reads` }) : null,
    element("div", { class: "aside" }, legendOf(scale, "relative to the mean of the row"),
      note(`The state grows over depth; colors show how the ${column}s of one sublayer differ.`))));
}

/* ---- means over tokens of lists of numbers ---- */

function lists() {
  for (const { name, about } of data.lists) {
    const shown = sublayers.filter((s) => s[name]);
    const most = Math.max(...shown.map((s) => s[name].length));
    section(`${about[0].toUpperCase()}${about.slice(1)}`, table([
      ...identity(), ...Array.from({ length: most }, (unused, i) => ({ title: String(i), cell: (s) => (i < s[name].length ? fixed(s[name][i], 3) : "") })),
    ], shown, { caption: "Means over tokens" }));
  }
}

/* ---- sums of states (dense_average) ---- */

function averages() {
  if (!result.averages) return;
  const most = Math.max(...result.averages.map((sum) => sum.weights.length));
  const back = Array.from({ length: most }, (unused, i) => i);
  section("Weights of the sums of states", table([
    { title: "after layer", cell: (sum) => String(sum.layer) },
    ...back.map((i) => ({ title: i ? `${i} before` : "own", cell: (sum) => fixed(sum.weights[sum.weights.length - 1 - i], 3) })),
  ], result.averages, { caption: "How much of the state after its own block, and of those before it, each sum contains" }));
}

/* ---- tokens ---- */

function context(token) {
  if (!isPresent(token.text)) return `token ${token.id}`;
  return element("span", {}, visible(token.before), element("mark", {}, visible(token.text)), visible(token.after));
}

function extremes() {
  const rows = gated.filter((s) => s.highest.length);
  if (!rows.length) return;
  const list = (title, tokens) => table([
    { title: "gate", cell: (token) => fixed(token.gate, 3) }, { title: "position", cell: (token) => count(token.position) },
    { title: title, text: true, wrap: true, cell: context },
  ], tokens, { caption: title });
  section("Tokens with extreme gates", row(table([
    { title: "sublayer", text: true, cell: labelOf },
    { title: "highest", cell: (s) => fixed(s.highest[0].gate, 3) }, { title: "in context", text: true, wrap: true, cell: (s) => context(s.highest[0]) },
    { title: "lowest", cell: (s) => fixed(s.lowest[0].gate, 3) }, { title: "in context", text: true, wrap: true, cell: (s) => context(s.lowest[0]) },
  ], rows, { caption: "The most extreme token of each sublayer, marked in its context (↵ is a line break)" }),
  element("div", { class: "aside" }, rows.map((s) => element("details", {}, element("summary", {}, `layer ${labelOf(s)}: more tokens`),
    list("Highest gates", s.highest), list("Lowest gates", s.lowest))))));
}

startHeader(data.title, data.made);
summary();
gates();
updates();
spectrum();
channels();
lists();
averages();
extremes();
startPage();
