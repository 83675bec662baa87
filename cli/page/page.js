/* What all report pages share: elements, tables, charts and heat maps, and colors that follow the color scheme of the
 * reader. A page's data is the JSON object in the element #data; its own script calls these functions. */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");

/* An error can leave the page incomplete: its message is shown above the page. */
window.addEventListener("error", (event) => {
  const text = `This page could not be drawn completely: ${event.message}`;
  main.prepend(element("p", { class: "error", role: "alert" }, text));
});

/* ---- elements ---- */

/* A new element with attributes and children; strings become text. */
function element(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/* Appends a section with a heading to the page; returns it. */
function section(title, ...children) {
  const node = element("section", {}, element("h2", {}, title), ...children);
  main.append(node);
  return node;
}

const note = (text) => element("p", { class: "note" }, text);
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const isPresent = (value) => value !== null && value !== undefined;

/* ---- numbers ---- */

const MISSING = "–";

/* A number with `decimals` decimals, with a true minus sign, but none before zero; MISSING for none. */
function fixed(value, decimals) {
  if (!isNumber(value)) return MISSING;
  const text = value.toFixed(decimals);
  return text.replace("-", Number(text) === 0 ? "" : "−");
}

/* A whole number with separators. */
function count(value) {
  return isNumber(value) ? Math.round(value).toLocaleString("en-US") : MISSING;
}

/* Three significant digits and a prefix of 1000: 1.23M. */
function short(value) {
  if (!isNumber(value)) return MISSING;
  const prefixes = ["", "k", "M", "G", "T", "P", "E", "Z"];
  let power = 0;
  let scaled = value;
  while (Math.abs(scaled) >= 999.5 && power < prefixes.length - 1) {
    scaled /= 1000;
    power++;
  }
  return String(Number(scaled.toPrecision(3))).replace("-", "−") + prefixes[power];
}

/* Four significant digits, without an exponent where that is short. */
function precise(value) {
  if (!isNumber(value)) return MISSING;
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-4 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return text.replace(/-/g, "−");
}

function seconds(value) {
  if (!isNumber(value)) return MISSING;
  if (value < 60) return `${fixed(value, value < 10 ? 2 : 1)} s`;
  const whole = Math.round(value);
  const parts = [[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
  const first = parts.findIndex((part) => part[0] > 0);
  return parts.slice(first, first + 2).map((part) => `${part[0]} ${part[1]}`).join(" ");
}

/* p-values below 0.0001 are not distinguished. */
const pValue = (p) => (isNumber(p) && p < 0.0001 ? "<0.0001" : fixed(p, 4));
const ellipsis = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/* Text in one line, with its white space visible. */
function visible(text) {
  return text.replace(/\r?\n/g, "↵").replace(/\t/g, "⇥").replace(/^ +$/, (spaces) => "␣".repeat(spaces.length));
}

/* ---- tables ---- */

/* columns: { title, text (left-aligned), wrap, cell: row => string or node }. The first column has the row headers; another
 * column without a value in any row is left out. options: caption. A wide table scrolls in its own box. */
function table(columns, rows, options = {}) {
  const kind = (column) => [column.text ? "text" : "number", column.wrap ? "wrap" : ""].join(" ").trim();
  const cells = columns.map((column) => rows.map(column.cell));
  const kept = columns.map((column, i) => i).filter((i) => i === 0 || cells[i].some((cell) => cell !== MISSING && cell !== ""));
  const head = element("tr", {}, kept.map((i) => element("th", { scope: "col", class: kind(columns[i]) }, columns[i].title)));
  const body = rows.map((row, r) => element("tr", {}, kept.map((i) =>
    element(i ? "td" : "th", { scope: i ? null : "row", class: kind(columns[i]) }, cells[i][r]))));
  return scrollBox(element("table", {},
    options.caption ? element("caption", {}, options.caption) : null, element("thead", {}, head), element("tbody", {}, body)),
  options.caption || "table");
}

/* A box that scrolls sideways. While its content is wider, its edge is shaded and the keyboard can scroll it. */
function scrollBox(content, label) {
  const box = element("div", { class: "scroll" }, content);
  const update = () => {
    const hidden = box.scrollWidth - box.clientWidth;
    box.toggleAttribute("data-more", hidden - box.scrollLeft > 1);
    for (const [name, value] of Object.entries({ tabindex: 0, role: "region", "aria-label": label })) {
      if (hidden > 1) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  };
  box.addEventListener("scroll", update);
  new ResizeObserver(update).observe(box);
  return box;
}

/* Figures, tables and text side by side, if there is space. */
const row = (...children) => element("div", { class: "row" }, ...children);

/* Values of one kind: pairs of a name and a text. */
function facts(pairs) {
  return element("dl", { class: "facts" },
    pairs.filter((pair) => pair).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

/* A chart's figures, folded. */
function dataTable(label, columns, rows) {
  const most = 100;
  const step = Math.ceil(rows.length / most);
  const shown = rows.filter((row, i) => i % step === 0 || i === rows.length - 1);
  const caption = step > 1 ? `${label}: one of every ${step} of ${rows.length} points, and the last` : label;
  return element("details", { class: "data" }, element("summary", {}, "Figures as a table"), table(columns, shown, { caption }));
}

/* Radio buttons in a row; calls `change` with the chosen value. choices: pairs of a value and a label. */
let groups = 0;
function radio(label, choices, chosen, change) {
  const name = `choice-${groups++}`;
  return element("fieldset", { class: "choices" }, element("legend", {}, label),
    choices.map(([value, text]) => {
      const input = element("input", { type: "radio", name, value, checked: value === chosen ? "" : null });
      input.addEventListener("change", () => change(value));
      return element("label", {}, input, text);
    }));
}

/* ---- colors ---- */

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const SERIES = 7;
const seriesColor = (i) => color(`series-${i % SERIES}`);
/* Series beyond the last color repeat them with another dash pattern. */
const seriesDash = (i) => [[], [7, 3], [2, 3], [7, 3, 2, 3]][Math.floor(i / SERIES) % 4];
const POINTS = ["circle", "triangle", "rect", "rectRot", "star", "cross", "crossRot"];

const partsOf = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const withAlpha = (hex, alpha) => `rgba(${partsOf(hex).join(",")},${alpha})`;

/* ---- colors of values ----
 * A scale { low, high } has colors from nothing to most. With { middle } it has a neutral color there, and two others below
 * and above; the colors of low, middle and high do not depend on the data. */

const isDiverging = (scale) => isNumber(scale.middle);
const paletteOf = (scale) => (isDiverging(scale) ? ["heat-low", "heat-middle", "heat-high"] : ["ramp-low", "ramp-high"]);

/* The place of a value among the colors, from 0 to 1. */
function shareOf(value, scale) {
  const part = (low, high) => Math.min(Math.max((value - low) / (high - low), 0), 1);
  if (!isDiverging(scale)) return part(scale.low, scale.high);
  return value > scale.middle ? 0.5 + part(scale.middle, scale.high) / 2 : part(scale.low, scale.middle) / 2;
}

/* A function from a value to its color, { background, text }, in the color scheme of the moment. The text is black or white,
 * whichever has more contrast: at least 4.5. */
function painter(scale) {
  const stops = paletteOf(scale).map((name) => partsOf(color(name)));
  return (value) => {
    const at = shareOf(value, scale) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    const mixed = stops[low].map((from, i) => Math.round(from + (stops[low + 1][i] - from) * (at - low)));
    return { background: `rgb(${mixed.join(",")})`, text: luminance(mixed) > 0.18 ? "#000000" : "#ffffff" };
  };
}

/* The relative luminance of WCAG. */
function luminance(parts) {
  const linear = parts.map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

/* The scale of the gates of these sublayers: 0 skips, 1 is neutral, and the end is the largest value that a gate can have. */
const gateScale = (sublayers) => ({ low: 0, middle: 1, high: Math.max(1, ...sublayers.map((s) => s.gate_max || 0)) });

/* Colors elements by their values; cells: pairs of an element and a value. */
function paintCells(cells, scale) {
  drawing(() => {
    const paint = painter(scale);
    for (const [node, value] of cells) {
      if (isNumber(value)) [node.style.background, node.style.color] = Object.values(paint(value));
    }
    return () => {};
  });
}

/* The colors of a scale, with its ends. */
function legendOf(scale, name) {
  const middle = isDiverging(scale) ? ` ${(100 * (scale.middle - scale.low)) / (scale.high - scale.low)}%` : "";
  const stops = paletteOf(scale).map((one, i) => `var(--${one})${i === 1 ? middle : ""}`);
  const ramp = element("div", { class: "ramp", style: `background: linear-gradient(to right, ${stops.join(", ")})` });
  return element("div", { class: "legend" }, element("span", {}, name),
    element("span", { class: "ends" }, precise(scale.low), ramp, precise(scale.high)),
    isDiverging(scale) ? element("span", {}, `gray: ${precise(scale.middle)}`) : null);
}

/* ---- drawings: redrawn when the color scheme changes, and in light colors at full width for printing ---- */

const drawings = [];

/* `draw` draws and returns a function that undoes it. Returns a function that draws again. */
function drawing(draw) {
  let undo = draw();
  const redraw = () => {
    undo();
    undo = draw();
  };
  drawings.push(redraw);
  return redraw;
}

const redrawAll = () => drawings.forEach((redraw) => redraw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
window.addEventListener("beforeprint", () => {
  document.documentElement.dataset.print = "";
  redrawAll();
});
window.addEventListener("afterprint", () => {
  delete document.documentElement.dataset.print;
  redrawAll();
});

/* ---- charts ---- */

Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;
Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;

/* The pixels that a legend needs beyond its first line. */
function legendHeight(names, width) {
  const total = names.reduce((sum, name) => sum + 48 + 7 * name.length, 0);
  return 20 * Math.max(0, Math.ceil((1.15 * total) / width) - 1);
}

/* A figure with a chart. `configure` returns the configuration of Chart.js for the colors of the moment. options: label (for
 * screen readers), height in pixels with one line of legend, names in the legend if there are many, caption. Returns { node,
 * redraw }. */
function chart(options, configure) {
  const canvas = element("canvas", { role: "img", "aria-label": options.label });
  const box = element("div", { class: "canvas" }, canvas);
  const node = element("figure", {}, box, options.caption ? element("figcaption", {}, options.caption) : null);
  const draw = () => {
    box.style.height = `${(options.height || 320) + legendHeight(options.names || [], box.clientWidth)}px`;
    Chart.defaults.color = color("muted");
    Chart.defaults.borderColor = color("grid");
    const made = new Chart(canvas, configure());
    return () => made.destroy();
  };
  let redraw = () => {};
  whenPlaced(() => (redraw = drawing(draw)));
  return { node, redraw: () => redraw() };
}

/* Charts measure their box, so they are drawn once the page is built: startPage(). */
const waiting = [];
const whenPlaced = (draw) => waiting.push(draw);
/* Draws what has been added to the page since the last call. */
function placeDrawings() {
  waiting.splice(0).forEach((draw) => draw());
}
function startPage() {
  placeDrawings();
  document.documentElement.dataset.ready = "";
}

/* Ticks at multiples of 1, 2 or 5 times a power of ten. By default an axis that ends at the data has ticks at both ends too,
 * whose labels overlap with their neighbors'. */
function setNiceTicks(scale) {
  const range = scale.max - scale.min;
  const power = 10 ** Math.floor(Math.log10(range / 8));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => range <= 8 * size);
  if (!(range > 0) || !step) return;
  scale.ticks = [];
  for (let i = Math.ceil(scale.min / step); i * step <= scale.max; i++) scale.ticks.push({ value: i * step });
}

/* An axis. options: title, log, min, max, format of a tick. */
function axis(options) {
  return {
    type: options.log ? "logarithmic" : "linear",
    title: { display: Boolean(options.title), text: options.title },
    min: options.min,
    max: options.max,
    bounds: options.bounds || "ticks",
    afterBuildTicks: options.bounds === "data" && !options.log ? setNiceTicks : undefined,
    ticks: { callback: tickLabel(options), maxRotation: 0, autoSkipPadding: 12 },
    grid: { color: color("grid") },
  };
}

/* All labels of a linear axis have the same number of decimals. On a logarithmic axis only 1, 2 and 5 times powers of ten
 * have labels. */
function tickLabel(options) {
  const decimals = (value) => (String(Number(value.toPrecision(6))).split(".")[1] || "").length;
  const format = options.format || ((value, ticks) => {
    if (ticks.some((tick) => Math.abs(tick.value) >= 1000 || decimals(tick.value) > 5)) return Math.abs(value) >= 1000 ? short(value) : precise(value);
    return value ? fixed(value, Math.max(...ticks.map((tick) => decimals(tick.value)))) : "0";
  });
  return (value, index, ticks) => {
    if (!options.log) return format(value, ticks);
    const lead = Number(value.toExponential(6).split("e")[0]);
    return [1, 2, 5].includes(Number(lead.toPrecision(3))) ? (options.format || precise)(value) : null;
  };
}

/* The tick labels of categories. */
function categories(options = {}) {
  return {
    type: "category",
    title: { display: Boolean(options.title), text: options.title },
    ticks: { autoSkip: true, maxRotation: 60, autoSkipPadding: 6 },
    grid: { color: color("grid") },
  };
}

/* Data sets of a line chart: for each series { name, points: [{ x, y, low, high, apart }] } its band, if points have low and
 * high, and its line. Points without y are left out; one that is apart is not joined to the next. */
function lineSets(series) {
  const sets = [];
  series.forEach((one, i) => {
    const points = one.points.filter((point) => isNumber(point.x) && isNumber(point.y))
      .flatMap((point) => (point.apart ? [point, { x: point.x, y: NaN }] : [point]));
    const ink = seriesColor(i);
    const marked = points.length <= 40;
    const common = { parsing: false, pointRadius: 0, pointHitRadius: 0, borderWidth: 0, band: true };
    if (points.some((point) => isNumber(point.low) && isNumber(point.high) && point.high > point.low)) {
      const edge = (key) => points.map((point) => ({ x: point.x, y: isNumber(point[key]) ? point[key] : point.y }));
      sets.push({ ...common, label: one.name, data: edge("low"), fill: false });
      sets.push({ ...common, label: one.name, data: edge("high"), fill: "-1", backgroundColor: withAlpha(ink, 0.2) });
    }
    sets.push({
      label: ellipsis(one.name, 40), data: points, parsing: false, borderColor: ink, backgroundColor: ink, borderWidth: 2,
      borderDash: seriesDash(i), pointRadius: marked ? 2.5 : (point) => (point.raw && point.raw.apart ? 2.5 : 0), pointHitRadius: 6,
      pointStyle: marked ? POINTS[i % POINTS.length] : "line", tension: 0, clip: 6,
    });
  });
  return sets;
}

/* The configuration of a line chart. options: series, x and y (axis options), legend. */
function lineChart(options) {
  const legend = options.legend !== false && options.series.length > 1;
  const datasets = lineSets(options.series);
  return {
    type: "line",
    data: { datasets },
    options: {
      interaction: { mode: "nearest", intersect: false },
      scales: { x: axis({ bounds: "data", ...options.x }), y: axis(options.y) },
      plugins: {
        legend: {
          display: legend,
          position: "bottom",
          labels: { usePointStyle: true, boxHeight: 7, pointStyleWidth: datasets.some((set) => set.pointStyle === "line") ? 24 : 0, filter: (item, all) => !all.datasets[item.datasetIndex].band },
        },
        tooltip: {
          filter: (item) => !item.dataset.band,
          callbacks: { title: (items) => (items.length ? `${options.x.title}: ${precise(items[0].raw.x)}` : ""), label: tooltipOf },
        },
      },
    },
  };
}

/* The exponential moving average of points' values, without the bias towards the first: weight 0 changes nothing. */
function smoothed(points, weight) {
  const sums = {};
  let total = 0;
  return points.map((point) => {
    total = weight * total + 1;
    const out = { x: point.x };
    for (const key of ["y", "low", "high"]) {
      sums[key] = weight * (sums[key] || 0) + (isNumber(point[key]) ? point[key] : point.y);
      out[key] = sums[key] / total;
    }
    return out;
  });
}

/* The choices of its weight. */
const SMOOTHING = [[0, "none"], [0.6, "0.6"], [0.9, "0.9"], [0.97, "0.97"]];

function tooltipOf(item) {
  const { y, low, high } = item.raw;
  const range = isNumber(low) && isNumber(high) && high > low ? ` (${precise(low)} to ${precise(high)})` : "";
  return `${item.dataset.label}: ${precise(y)}${range}`;
}

/* ---- heat maps ---- */

/* The range of finite values, never empty. */
function rangeOf(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!isNumber(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return { low: 0, high: 1 };
  return low === high ? { low: low - 0.5, high: high + 0.5 } : { low, high };
}

/* A heat map on a canvas. options: label, caption, rows (labels), columns (values of the axis below), xTitle, value name,
 * values[row][column] (null: missing, a diagonal line), scale (by default the range of the values), rowLabels (shorter labels
 * at the side), tight (thin rows). The value under the pointer is shown below. */
function heatMap(options) {
  const scale = options.scale || rangeOf(options.values.flat());
  const canvas = element("canvas", { role: "img", "aria-label": `${options.label}: ${options.name} from ${precise(scale.low)} to ${precise(scale.high)}` });
  const box = element("div", { class: "canvas" }, canvas);
  const rowHeight = options.tight ? 6 : Math.max(11, Math.min(22, 420 / options.rows.length));
  const shape = { left: 0, top: 4, bottom: 38, rowHeight };
  const height = Math.ceil(shape.top + rowHeight * options.rows.length + shape.bottom);
  box.style.height = `${height}px`;
  const value = element("output", { class: "value" });
  const node = element("figure", {}, legendOf(scale, options.name), box, value,
    options.caption ? element("figcaption", {}, options.caption) : null);
  const draw = () => drawHeatMap(canvas, box.clientWidth, height, shape, scale, options);
  canvas.addEventListener("pointermove", (event) => {
    const { row, column } = cellAt(event, shape, options);
    value.textContent = row === null ? "" :
      `${options.rows[row]}, ${options.xTitle} ${options.columns[column]}: ${precise(options.values[row][column])}`;
  });
  canvas.addEventListener("pointerleave", () => (value.textContent = ""));
  whenPlaced(() => {
    const redraw = drawing(draw);
    new ResizeObserver(redraw).observe(box);
  });
  return node;
}

function cellAt(event, shape, options) {
  const row = Math.floor((event.offsetY - shape.top) / shape.rowHeight);
  const column = Math.floor(((event.offsetX - shape.left) / shape.width) * options.columns.length);
  const inside = row >= 0 && row < options.rows.length && column >= 0 && column < options.columns.length;
  return inside ? { row, column } : { row: null, column: null };
}

function drawHeatMap(canvas, width, height, shape, scale, options) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = `12px ${Chart.defaults.font.family}`;
  shape.left = Math.ceil(Math.max(...(options.rowLabels || options.rows).map((row) => context.measureText(row).width))) + 8;
  shape.width = Math.max(10, width - shape.left - 8);
  drawCells(context, shape, scale, options);
  drawHeatLabels(context, shape, options);
  return () => context.clearRect(0, 0, width, height);
}

/* Cells overlap by half a pixel, so that no seams show. The frame shows where the map ends. */
function drawCells(context, shape, scale, options) {
  const paint = painter(scale);
  const cell = shape.width / options.columns.length;
  const gap = shape.rowHeight > 14 ? 1 : 0;
  context.strokeStyle = color("control");
  options.values.forEach((row, r) => row.forEach((value, c) => {
    const x = shape.left + c * cell;
    const y = shape.top + r * shape.rowHeight;
    if (isNumber(value)) {
      context.fillStyle = paint(value).background;
      context.fillRect(x, y, cell + (c === options.columns.length - 1 ? 0 : 0.5), shape.rowHeight - gap);
    } else {
      context.beginPath();
      context.moveTo(x, y + shape.rowHeight);
      context.lineTo(x + cell, y);
      context.stroke();
    }
  }));
  context.strokeRect(shape.left - 0.5, shape.top - 0.5, shape.width + 1, options.rows.length * shape.rowHeight + 1 - gap);
}

function drawHeatLabels(context, shape, options) {
  const bottom = shape.top + options.rows.length * shape.rowHeight;
  context.fillStyle = color("muted");
  context.textBaseline = "middle";
  context.textAlign = "right";
  (options.rowLabels || options.rows).forEach((row, r) => context.fillText(row, shape.left - 6, shape.top + (r + 0.5) * shape.rowHeight));
  context.textBaseline = "top";
  context.textAlign = "center";
  const n = options.columns.length;
  const room = Math.max(...options.columns.map((column) => context.measureText(String(column)).width)) + 14;
  const every = niceStep(Math.ceil((n * room) / shape.width));
  for (let c = 0; c < n; c += every) {
    const x = shape.left + ((c + 0.5) * shape.width) / n;
    context.fillText(String(options.columns[c]), x, bottom + 4);
  }
  context.fillText(options.xTitle, shape.left + shape.width / 2, bottom + 20);
}

/* The least of 1, 2, 5, 10, 20, ... that is not below n. */
function niceStep(n) {
  let power = 1;
  for (;;) {
    for (const factor of [1, 2, 5]) if (factor * power >= n) return factor * power;
    power *= 10;
  }
}

/* ---- the frame of a page ---- */

function startHeader(title, subtitle) {
  main.append(element("h1", {}, title));
  if (subtitle) main.append(element("p", { class: "muted" }, subtitle));
}
