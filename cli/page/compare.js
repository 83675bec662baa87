/* The page of ddl compare --html: curves with bands over seeds, groups, runs, costs and task scores. data.result is the
 * object that --json prints; data.curves has the curve of each group. */
"use strict";

const result = data.result;
const baseline = result.groups[result.baseline];
const hasSeeds = result.groups.some((group) => group.seeds > 1);
const hasVal = data.curves.some((curve) => curve.val_loss.some(isNumber));

const AXES = [
  ["tokens", "tokens", "tokens"],
  ["flops", "FLOPs", "FLOPs"],
  ["train_seconds", "training time", "seconds of training time"],
  ["seconds", "wall time", "seconds of wall time"],
  ["steps", "steps", "steps"],
];
const LOSSES = { loss: "training loss (nats)", val_loss: "validation loss (nats)" };

/* ---- curves ---- */

const view = { x: data.view.x, y: data.view.val && hasVal ? "val_loss" : "loss", highest: data.view.max_loss || null, smoothing: 0 };

function pointsOf(curve) {
  const prefix = view.y === "loss" ? "loss" : "val";
  const points = curve[view.x].map((x, i) => ({
    x, y: curve[view.y][i], low: curve[`${prefix}_low`][i], high: curve[`${prefix}_high`][i],
  })).filter((point) => isNumber(point.y));
  return smoothed(points, view.smoothing).filter((point) => !view.highest || point.y <= view.highest);
}

const nameOf = (group) => group.name + (group.seeds > 1 ? ` (${group.seeds} seeds)` : "");

function curves() {
  const drawn = chart({
    label: "Loss curves of the groups",
    height: 420, names: result.groups.map(nameOf),
    caption: "A line is the mean over the seeds of a group" +
      (hasSeeds ? ", its band the range from the lowest to the highest seed." : "; every group has one seed, so there are no bands.") +
      " Smoothing is the weight of the previous average in an exponential moving average.",
  }, () => lineChart({
    series: result.groups.map((group, g) => ({ name: nameOf(group), points: pointsOf(data.curves[g]) })),
    x: { title: AXES.find((row) => row[0] === view.x)[2], format: short },
    y: { title: LOSSES[view.y], max: view.highest || undefined },
  }));
  const change = (key) => (value) => {
    view[key] = value;
    drawn.redraw();
  };
  const highest = element("input", { type: "number", min: 0, step: 0.1, value: view.highest, "aria-label": "highest loss drawn" });
  highest.style.width = "6em";
  highest.addEventListener("change", () => change("highest")(Number(highest.value) || null));
  section("Loss",
    radio("Horizontal axis", AXES.map((row) => [row[0], row[1]]), view.x, change("x")),
    hasVal ? radio("Loss", [["loss", "training"], ["val_loss", "validation"]], view.y, change("y")) : null,
    radio("Smoothing", SMOOTHING, 0, change("smoothing")),
    element("label", { class: "control muted" }, "Highest loss drawn ", highest),
    drawn.node, curveTable());
}

/* The means of all groups by step. */
function curveTable() {
  const at = new Map();
  data.curves.forEach((curve, g) => curve.steps.forEach((step, i) => {
    if (!at.has(step)) at.set(step, { step, tokens: curve.tokens[i], loss: [], val_loss: [] });
    at.get(step).loss[g] = curve.loss[i];
    at.get(step).val_loss[g] = curve.val_loss[i];
  }));
  const losses = (key, title) => result.groups.map((group, g) => ({ title: `${ellipsis(group.name, 24)}: ${title}`, cell: (row) => fixed(row[key][g], 4) }));
  return dataTable("Mean loss of each group by step", [
    { title: "step", cell: (row) => count(row.step) }, { title: "tokens", cell: (row) => count(row.tokens) },
    ...losses("loss", "training"), ...(hasVal ? losses("val_loss", "validation") : []),
  ], [...at.values()].sort((a, b) => a.step - b.step));
}

/* ---- tables ---- */

/* Columns of the statistics of a row's group, which `of` returns for the row. */
function statistics(of, isBaseline) {
  const number = (title, field) => ({ title, cell: (row) => fixed(of(row)[field], 4) });
  const p = (title, field) => ({ title, cell: (row) => pValue(of(row)[field]) });
  return [
    number("mean", "mean"), number("sd", "sd"),
    { title: "95 % interval", cell: (row) => (isNumber(of(row).low) ? `${fixed(of(row).low, 4)} to ${fixed(of(row).high, 4)}` : MISSING) },
    { title: "difference", cell: (row) => (isBaseline(row) && result.groups.length > 1 ? "baseline" : fixed(of(row).difference, 4)) },
    p("Welch p", "welch_p"), p("paired p", "paired_p"),
  ];
}

function groupTable(key, title) {
  const rows = result.groups.filter((group) => isNumber(group[key].mean));
  if (!rows.length) return null;
  const steps = [...new Set(rows.map((group) => count(key === "val_loss" ? group.val_step : group.step)))];
  return table([
    { title: "group", text: true, wrap: true, cell: (group) => group.name },
    { title: "seeds", cell: (group) => count(group.seeds) },
    ...statistics((group) => group[key], (group) => group === baseline),
  ], rows, { caption: `${title}, at step ${steps.join(", ")}` });
}

const NEEDS_SEEDS = "standard deviations, intervals and p-values need a second run that differs only in its seed";

function groupTables() {
  if (result.groups.length < 2 && !hasSeeds) return;
  const hasSingle = result.groups.some((group) => group.seeds === 1);
  section("Groups", row(
    element("div", { class: hasSeeds ? null : "row" }, groupTable("val_loss", "Validation loss"), groupTable("train_loss", "Training loss, mean of the last tenth of the logged steps")),
    element("div", { class: "aside" },
      hasSeeds ? note("Runs that differ only in their seeds are one group. Intervals are 95 % confidence intervals of the mean (Student's t), " +
        "and p-values are two-sided: Welch's t-test, and the t-test of the pairs of equal seed. They are not corrected for multiple comparisons.") : null,
      result.groups.length > 1 ? note(`Differences are relative to ${baseline.name}.`) : null,
      hasSingle ? note(`${hasSeeds ? "Some groups have one run" : "Each group has one run"}: ${NEEDS_SEEDS}.`) : null,
      hasSeeds ? element("ul", {}, result.groups.filter((group) => group.seeds > 1)
        .map((group) => element("li", {}, `${group.name}: ${group.runs.join(", ")}`))) : null)));
}

function contrastTables() {
  if (!result.contrasts) return;
  const rows = result.contrasts, options = result.contrast_options, detect = options.detect || options.margin;
  const interval = (title, low, high, digits) => ({ title,
    cell: (row) => (isNumber(row[low]) ? `${fixed(row[low], digits)} to ${fixed(row[high], digits)}` : MISSING) });
  const p = (title, field, isShown = true) => ({ title, cell: (row) => (isShown ? pValue(row[field]) : MISSING) });
  const holm = options.correction === "holm";
  const percent = (level) => `${Number((100 * (1 - level)).toPrecision(4))} %`;
  section("Contrasts", options.question ? note(`Question: ${options.question}`) : null,
  options.stopping ? note(`Stopping rule: ${options.stopping}`) : null, table([
    ...(rows[0].role ? [{ title: "role", text: true, cell: (row) => row.role }] : []),
    { title: "contrast", text: true, wrap: true, cell: (row) => row.contrast },
    { title: "loss", text: true, cell: (row) => row.loss },
    { title: "seeds", cell: (row) => (row.paired ? count(row.seeds) : MISSING) },
    { title: "difference", cell: (row) => fixed(row.difference, 4) },
    interval(`${percent(options.level)} interval`, "low", "high", 4), p("p", "p"), p("Holm p", "holm_p", holm),
    { title: "effect", cell: (row) => fixed(row.effect, 2) },
    interval(`${percent(options.level)} interval of the effect`, "effect_low", "effect_high", 2),
    interval(`${percent(2 * options.level)} interval`, "low_90", "high_90", 4),
    p("TOST p", "equivalence_p"), p("TOST Holm p", "equivalence_holm_p", holm),
    { title: "seeds needed", cell: (row) => count(row.seeds_needed) },
    { title: "for equivalence", cell: (row) => count(row.equivalence_seeds_needed) },
    { title: "result", text: true, cell: (row) => row.result },
  ], rows, { caption: "Differences of means that were asked for" }),
  note("Tests are paired by seed where all groups have two or more seeds in common, otherwise Welch's. Effects are in standard deviations of the contrast of one seed." +
    (options.margin ? ` TOST: two one-sided tests of equivalence within ${options.margin}.` : "") +
    (detect ? ` Seeds needed: for a difference of ${detect} with power ${options.power}.` : "")));
}

function reachTable() {
  if (!isNumber(result.target) || result.groups.length < 2) return;
  const ratio = (key) => ({ title: "relative", cell: (group) => fixed(group.reach[key], 3) });
  const reaching = result.groups.filter((group) => isNumber(group.reach.tokens));
  const others = result.groups.filter((group) => !reaching.includes(group)).map((group) => group.name);
  section("Cost to reach the baseline's loss", row(
    reaching.length > 1 ? table([
      { title: "group", text: true, wrap: true, cell: (group) => group.name },
      { title: "tokens", cell: (group) => count(group.reach.tokens) }, ratio("tokens_ratio"),
      { title: "FLOPs", cell: (group) => short(group.reach.flops) }, ratio("flops_ratio"),
      { title: "time", cell: (group) => seconds(group.reach.seconds) }, ratio("seconds_ratio"),
    ], reaching, { caption: `Cost to reach the validation loss ${fixed(result.target, 4)}` }) : null,
    element("div", { class: "aside" },
      reaching.length > 1 ? note("Tokens, FLOPs and training time until the mean curve of a group has the final validation loss of " +
        `${baseline.name}, and relative to the totals of ${baseline.name}.`) : null,
      others.length ? note(`The validation loss ${fixed(result.target, 4)} of ${baseline.name} is not reached by ${others.join(", ")}.`) : null)));
}

function runTable() {
  section("Runs", table([
    { title: "run", text: true, wrap: true, cell: (run) => run.run },
    { title: "model", text: true, cell: (run) => (run.model === "-" ? MISSING : run.model) },
    { title: "seed", cell: (run) => (isPresent(run.seed) ? String(run.seed) : MISSING) },
    { title: "parameters", cell: (run) => count(run.parameters || null) },
    { title: "steps", cell: (run) => count(run.steps) },
    { title: "training loss", cell: (run) => fixed(run.train_loss, 4) },
    { title: "validation loss", cell: (run) => fixed(run.val_loss, 4) },
    { title: "tokens/s", cell: (run) => count(run.tokens_per_s) },
    { title: "training time", cell: (run) => seconds(run.train_seconds) },
    { title: "FLOPs", cell: (run) => short(run.flops) },
    { title: "peak MiB", cell: (run) => (isNumber(run.peak_memory) ? count(run.peak_memory / 1048576) : MISSING) },
    { title: "saved model", text: true, cell: (run) => (run.saved_model ? run.saved_model.name : MISSING) },
  ], result.runs, { caption: "Runs, each up to its last step" }),
  result.runs.some((run) => run.repeats) ? note(`Not in the statistics, because they repeat a seed: ${
    result.runs.filter((run) => run.repeats).map((run) => run.run).join(", ")}.`) : null);
}

const byTask = (a, b) => (a.task < b.task ? -1 : a.task > b.task ? 1 : 0);

function scoreTable() {
  const rows = [];
  for (const run of result.runs) {
    for (const [task, score] of Object.entries(run.tasks || {})) {
      const metric = Object.keys(score).find((key) => key !== "step" && !key.endsWith("_stderr"));
      rows.push({ task, run: run.run, metric, value: score[metric], error: score[`${metric}_stderr`], step: score.step });
    }
  }
  if (!rows.length) return;
  rows.sort(byTask);
  section("Task scores", table([
    { title: "task", text: true, wrap: true, cell: (row) => row.task },
    { title: "run", text: true, wrap: true, cell: (row) => row.run },
    { title: "metric", text: true, cell: (row) => row.metric },
    { title: "value", cell: (row) => fixed(row.value, 4) },
    { title: "standard error", cell: (row) => fixed(row.error, 4) },
    { title: "step", cell: (row) => count(row.step) },
  ], rows, { caption: "Last scores of each run" }), hasSeeds ? groupScores() : null);
}

function groupScores() {
  const rows = result.groups.flatMap((group) => Object.entries(group.tasks || {}).map(([task, score]) => ({ task, group, ...score })));
  if (!rows.length) return null;
  rows.sort(byTask);
  return table([
    { title: "task", text: true, wrap: true, cell: (row) => row.task },
    { title: "group", text: true, wrap: true, cell: (row) => nameOf(row.group) },
    { title: "metric", text: true, cell: (row) => row.metric },
    ...statistics((row) => row, (row) => row.group === baseline),
  ], rows, { caption: "Statistics by group, of each run's last score" });
}

const several = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
startHeader(data.title, [
  several(result.runs.length, "run") + (result.groups.length < result.runs.length ? ` in ${several(result.groups.length, "group")}` : ""),
  result.groups.length > 1 ? `, compared with ${baseline.name}` : "", `. ${data.made}`,
].join(""));
for (const text of data.notes) main.append(note(`Note: ${text}.`.replace("..", ".")));
curves();
groupTables();
contrastTables();
reachTable();
runTable();
scoreTable();
startPage();
