/* The page of ddl report: curves of one run, its gates over the steps, scores, samples, events and recipe. data.result is
 * the object that --json prints: lines of metrics.jsonl and what else is in the run folder. */
"use strict";

const result = data.result;
/* A step of which no target was counted has no loss; that of step 0 is the loss of step 1. */
const steps = result.steps.map((row) => (row.loss === 0 && (row.skipped || row.step === 0) ? { ...row, loss: null } : row));
const telemetry = result.telemetry;
/* The processes that trained the run; earlier versions do not record them. */
const starts = steps.filter((row) => row.start).map((row) => row.start);

/* ---- summary ---- */

function summary() {
  const left = isNumber(result.steps_planned) ? ` of ${count(result.steps_planned)}` : "";
  main.append(facts([
    ["status", result.status], ["step", `${count(result.step)}${left}`],
    result.model ? ["model", result.model] : null,
    ["parameters", count(result.parameters || null)],
    ["training loss", fixed(result.train_loss, 4)],
    ["validation loss", fixed(result.val_loss, 4)],
    ["best validation loss", isNumber(result.best_val_loss) ? `${fixed(result.best_val_loss, 4)} at ${count(result.best_step)}` : MISSING],
    ["tokens", count(result.tokens)], ["FLOPs", short(result.flops)], ["tokens/s", count(result.tokens_per_s)],
    ["training time", seconds(result.train_seconds)], ["wall time", seconds(result.seconds)],
    starts.length ? ["processor", starts[starts.length - 1].processor] : null,
    ["peak memory", isNumber(result.peak_memory) ? `${count(result.peak_memory / 1048576)} MiB` : MISSING],
  ]));
  if (steps.length < result.n_steps) main.append(note(`The charts have ${count(steps.length)} of ${count(result.n_steps)} logged steps, with every validation.`));
}

/* ---- curves ---- */

const AXES = [
  ["step", "steps", "steps"], ["tokens", "tokens", "tokens"], ["flops", "FLOPs", "FLOPs"],
  ["train_seconds", "training time", "seconds of training time"], ["seconds", "wall time", "seconds of wall time"],
];
const view = { x: "step", smoothing: 0, highest: null };
const xAxis = () => ({ title: AXES.find((row) => row[0] === view.x)[2], format: short });
const pointsOf = (key) => steps.map((row) => ({ x: row[view.x], y: row[key], step: row.step })).filter((point) => isNumber(point.x) && isNumber(point.y));
const below = (points) => points.filter((point) => !view.highest || point.y <= view.highest);

function curves() {
  const small = [
    ["lr", "learning rate", {}], ["grad_norm", "gradient norm, before clipping", { log: logScale("grad_norm") }],
    ["tokens_per_s", "tokens per second", { min: 0, format: short }],
  ].filter(([key]) => steps.some((row) => isNumber(row[key])));
  const validations = () => below(pointsOf("val_loss").map((point) => ({ ...point, apart: point.step === 0 })));
  const loss = chart({
    label: "Training and validation loss", height: 400,
    caption: "Training loss is that of each logged step. The validation loss before training is a point of its own. Smoothing is the weight of the previous average in an exponential moving average of the training loss.",
  }, () => lineChart({
    series: [{ name: "training loss", points: below(smoothed(pointsOf("loss"), view.smoothing)) }, { name: "validation loss", points: validations() }]
      .filter((series) => series.points.length),
    x: xAxis(), y: { title: "loss (nats)" },
  }));
  const others = small.map(([key, title, y]) => {
    const drawn = chart({ label: title, height: 220 }, () => lineChart({ series: [{ name: title, points: pointsOf(key) }], x: xAxis(), y }));
    drawn.node.prepend(element("h3", {}, title));
    return drawn;
  });
  const change = (key) => (value) => {
    view[key] = value;
    [loss, ...others].forEach((drawn) => drawn.redraw());
  };
  const highest = element("input", { type: "number", min: 0, step: 0.1, "aria-label": "highest loss drawn" });
  highest.style.width = "6em";
  highest.addEventListener("change", () => change("highest")(Number(highest.value) || null));
  section("Curves", radio("Horizontal axis", AXES.map((row) => [row[0], row[1]]), view.x, change("x")),
    radio("Smoothing", SMOOTHING, 0, change("smoothing")),
    element("label", { class: "control muted" }, "Highest loss drawn ", highest), loss.node,
    element("div", { class: "grid wide" }, others.map((drawn) => drawn.node)), stepTable());
}

/* Whether the values span more than a factor of 30. */
function logScale(key) {
  const values = steps.map((row) => row[key]).filter((value) => value > 0);
  return values.length > 0 && Math.max(...values) > 30 * Math.min(...values);
}

function stepTable() {
  return dataTable("Logged steps", [
    { title: "step", cell: (row) => count(row.step) }, { title: "tokens", cell: (row) => count(row.tokens) },
    { title: "training loss", cell: (row) => fixed(row.loss, 4) }, { title: "validation loss", cell: (row) => fixed(row.val_loss, 4) },
    { title: "learning rate", cell: (row) => precise(row.lr) }, { title: "gradient norm", cell: (row) => precise(row.grad_norm) },
    { title: "tokens/s", cell: (row) => count(row.tokens_per_s) }, { title: "seconds", cell: (row) => fixed(row.train_seconds, 1) },
  ], steps);
}

/* ---- telemetry: sublayers over steps ---- */

/* Figures that the heat map shows, if the records have them, and the scales of those that have a fixed range or meaning
 * (that of λ is widened if the values need it); the others are sizes, and their scales begin at 0. */
const GATE = gateScale(telemetry.flatMap((record) => record.sublayers));
const FACTOR = { low: 0, middle: 1, high: 2 };
const SHARE = { low: 0, high: 1 };
const GATES = ["mean", "q05", "q25", "q50", "q75", "q95", "min", "max"];
const scaleOf = (kind) => ({ factor: FACTOR, overlap: SHARE, skip: SHARE, match: SHARE, over: SHARE, reflect: SHARE,
  shrink: { low: 1 - GATE.high, middle: 0, high: 1 } })[kind] || (GATES.includes(kind) ? GATE : undefined);
const rank = (one) => (GATES.includes(one.kind) ? GATES.indexOf(one.kind) : GATES.length);
const FIGURES = [
  ...[...data.figures].sort((a, b) => rank(a) - rank(b)).map((one) => [one.name, one.about, scaleOf(one.kind)]),
  ["x_rms", "root mean square of the stream"], ["f_rms", "root mean square of the sublayer's output"],
];

const labelOf = (s) => `${s.layer} ${s.sub}${s.step_index === undefined ? "" : `.${s.step_index}`}`;

/* A list of choices in front of what `build` makes of the chosen one. */
function chooser(label, choices, build) {
  const holder = element("div", {}, build(choices[0][0]));
  const select = element("select", {}, choices.map(([value, text]) => element("option", { value }, text)));
  select.addEventListener("change", () => {
    holder.replaceChildren(build(select.value));
    placeDrawings();
  });
  return [element("p", {}, element("label", {}, `${label} `, select)), holder];
}

function gates() {
  if (!telemetry.length) {
    section("Gates over the steps", note("The run has no telemetry records: they are written if the key telemetry_every of the recipe is not 0."));
    return;
  }
  const sublayers = telemetry[0].sublayers;
  const columns = telemetry.map((record) => record.step);
  const valueOf = (i, key) => (record) => record.sublayers[i][key];
  const sublayersWith = (key) => sublayers.map((s, i) => i).filter((i) => telemetry.some((record) => isNumber(valueOf(i, key)(record))));
  const present = FIGURES.filter(([key]) => sublayersWith(key).length);
  const map = (key) => {
    const [, title, scale = { low: 0, high: 0 }] = FIGURES.find((one) => one[0] === key);
    const shown = sublayersWith(key);
    const values = shown.map((i) => telemetry.map(valueOf(i, key)));
    return heatMap({ label: `${title} by sublayer and step`, name: title, xTitle: "step", rows: shown.map((i) => labelOf(sublayers[i])),
      columns, values, scale: { ...scale, ...rangeOf([scale.low, scale.high, ...values.flat()]) } });
  };
  section("Gates over the steps",
    note(`${count(telemetry.length)} of ${count(result.n_telemetry)} telemetry records. Each row is a sublayer, each column a record.`),
    chooser("Figure", present, map),
    dataTable(present[0][1], [{ title: "step", cell: (record) => count(record.step) },
      ...sublayersWith(present[0][0]).map((i) => ({ title: labelOf(sublayers[i]), cell: (record) => fixed(valueOf(i, present[0][0])(record), 3) }))], telemetry));
  histograms(sublayers, columns);
  gradients(columns);
}

function histograms(sublayers, columns) {
  const gated = sublayers.map((s, i) => i).filter((i) => telemetry.some((record) => record.sublayers[i].histogram));
  if (!gated.length) return;
  const share = (bins, b) => bins[b] / (bins.reduce((sum, n) => sum + n, 0) || 1);
  section("Histograms over the steps", row(element("div", { class: "figure" }, chooser("Sublayer", gated.map((i) => [i, `layer ${labelOf(sublayers[i])}`]), (i) => {
    const s = telemetry.find((record) => record.sublayers[i].histogram).sublayers[i];
    const bins = s.histogram.map((n, b) => b).reverse();
    const values = bins.map((b) => telemetry.map((record) => (record.sublayers[i].histogram ? share(record.sublayers[i].histogram, b) : null)));
    const edge = (b) => precise((b * s.gate_max) / s.histogram.length);
    return heatMap({
      label: `Histogram of the gate of layer ${labelOf(s)} over the steps`, scale: { low: 0, high: rangeOf(values.flat()).high }, name: "share of the tokens", xTitle: "step", tight: true, columns,
      rows: bins.map((b) => `${edge(b)} to ${edge(b + 1)}`),
      rowLabels: bins.map((b) => (b % 5 === 0 ? edge(b) : "")),
      values,
      caption: "Each column is the histogram of a record; from bottom to top the bins of the gate, labeled with their lower edge.",
    });
  })), latestHistograms(sublayers, gated)));
}

/* The quantiles of the last record. */
function latestHistograms(sublayers, gated) {
  const last = telemetry[telemetry.length - 1];
  const value = (s, kind) => fixed(data.figures.filter((one) => one.kind === kind).map((one) => s[one.name]).find(isNumber), 3);
  return table([
    { title: "sublayer", text: true, cell: (s) => labelOf(s) }, { title: "rule", text: true, cell: (s) => s.rule },
    ...[["mean", "mean"], ["5 %", "q05"], ["50 %", "q50"], ["95 %", "q95"], ["lowest", "min"], ["highest", "max"]]
      .map(([title, part]) => ({ title, cell: (s) => value(s, part) })),
  ], gated.map((i) => last.sublayers[i]), { caption: `Gates at step ${count(last.step)}` });
}

/* Norms differ by orders of magnitude: logarithms. */
function gradients(columns) {
  const norms = telemetry.map((record) => record.grad_norms);
  if (!norms.every((one) => one && Array.isArray(one.layers))) return;
  const rows = [["embedding", (one) => one.embedding], ...norms[0].layers.map((norm, l) => [`layer ${l}`, (one) => one.layers[l]]), ["head", (one) => one.head]];
  const log = (value) => (value > 0 ? Math.log10(value) : null);
  section("Gradient norms by layer", heatMap({
    label: "Gradient norm by layer and step", name: "log₁₀ of the norm", xTitle: "step", rows: rows.map((row) => row[0]), columns,
    values: rows.map((row) => norms.map((one) => log(row[1](one)))),
    caption: "Before clipping. The squares of the norms of a step add up to the square of its gradient norm.",
  }), dataTable("Gradient norms", [{ title: "step", cell: (i) => count(columns[i]) },
    ...rows.map(([title, norm]) => ({ title, cell: (i) => precise(norm(norms[i])) }))], columns.map((step, i) => i)));
}

/* ---- tasks, samples, events ---- */

function tasks() {
  const series = new Map();
  for (const row of steps) {
    for (const [task, values] of Object.entries(row.tasks || {})) {
      const key = isNumber(values.acc_norm) ? "acc_norm" : "acc";
      if (!isNumber(values[key])) continue;
      if (!series.has(task)) series.set(task, { name: `${task}, ${key}`, task, key, points: [] });
      const error = values[`${key}_stderr`];
      const band = isNumber(error) ? { low: values[key] - error, high: values[key] + error } : {};
      series.get(task).points.push({ x: row.step, y: values[key], error, ...band });
    }
  }
  if (!series.size) return;
  const list = [...series.values()];
  section("Task scores", chart({ label: "Task scores over the steps", height: 320, caption: "The band is one standard error." },
    () => lineChart({ series: list, x: { title: "steps", format: short }, y: { title: "score" } })).node,
  table([
    { title: "task", text: true, wrap: true, cell: (one) => one.task }, { title: "metric", text: true, cell: (one) => one.key },
    { title: "value", cell: (one) => fixed(one.points[one.points.length - 1].y, 4) },
    { title: "standard error", cell: (one) => fixed(one.points[one.points.length - 1].error, 4) },
    { title: "step", cell: (one) => count(one.points[one.points.length - 1].x) },
  ], list, { caption: "Last scores" }));
}

function samples() {
  const list = result.samples;
  if (!list.length) return;
  const shown = (sample) => element("div", {}, element("h3", {}, `step ${count(sample.step)}`),
    element("pre", {}, element("mark", {}, sample.prompt), sample.text));
  const earlier = list.slice(0, -1).reverse();
  section("Samples", note("The prompt is marked."), shown(list[list.length - 1]),
    earlier.length ? element("details", {}, element("summary", {}, `${earlier.length} earlier samples`), earlier.map(shown)) : null);
}

function events() {
  const rows = [
    ...starts.map((one) => ({ step: one.step, what: one.step ? "resumed" : "started", more: `${one.time}, ${one.processor}, ${one.backend}` })),
    ...steps.filter((row) => row.skipped).map((row) => ({ step: row.step, what: "update skipped", more: row.loss === null ? "no target is counted" : `gradient norm ${precise(row.grad_norm)}: a spike` })),
    ...result.dumps.map((dump) => ({ step: dump.step, what: "non-finite value", more: `${dump.what}, micro-batch ${dump.micro_batch}${dump.first ? `, first in layer ${dump.first.layer} ${dump.first.part}, tensor ${dump.first.tensor}` : ""}` })),
  ].sort((a, b) => a.step - b.step);
  const ends = { running: "The run is in progress.", finished: "The run has finished.", stopped: "The run was stopped before its last step; ddl train --resume continues it." };
  section("Events", element("p", {}, ends[result.status]),
    row(rows.length ? table([
      { title: "step", cell: (row) => count(row.step) }, { title: "event", text: true, cell: (row) => row.what }, { title: "details", text: true, wrap: true, cell: (row) => row.more },
    ], rows, { caption: "Starts and resumes, skipped updates and non-finite values" })
      : null,
    result.checkpoints.length ? table([
      { title: "checkpoint", cell: (row) => count(row.step) }, { title: "training loss", cell: (row) => fixed(row.loss, 4) },
      { title: "validation loss", cell: (row) => fixed(row.val_loss, 4) }, { title: "state", text: true, cell: (row) => (row.damaged ? "corrupted" : "") },
    ], result.checkpoints, { caption: "Checkpoints" }) : null),
    rows.length === starts.length ? note("No update was skipped, and all values were finite.") : null,
    result.checkpoints.length ? null : note("There is no checkpoint."));
}

/* ---- recipe ---- */

function keyList(values, keys, title) {
  return [element("h3", {}, title), element("dl", { class: "keys" }, keys.map((key) =>
    element("div", {}, element("dt", {}, key), element("dd", {}, values[key] === "" ? "empty" : String(values[key])))))];
}

function recipe() {
  if (!result.recipe) {
    section("Recipe", note("The recipe.yaml of the run cannot be read."));
    return;
  }
  const { recipe: keys, config } = result;
  section("Recipe", ...keyList(keys, result.recipe_changed, "Keys of the run that differ from their default"),
    ...keyList(config, result.config_changed, "Keys of the model that differ from their default"),
    element("details", {}, element("summary", {}, "All keys"), ...keyList(keys, Object.keys(keys), "Keys of the run"), ...keyList(config, Object.keys(config), "Keys of the model")));
}

startHeader(data.title, data.made);
summary();
curves();
gates();
tasks();
samples();
events();
recipe();
startPage();
