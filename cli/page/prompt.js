/* The page of ddl inspect --prompt --html: the tokens of a prompt, colored by the gate or the step of each sublayer.
 * data.result is the object that --json prints. */
"use strict";

const result = data.result;
const sublayers = result.sublayers;
const labelOf = (s) => `${s.layer} ${s.sub}${s.step_index === undefined ? "" : `.${s.step_index}`}`;
const MEASURES = { gates: "gate", steps: "size of the step ‖X′ − X‖ / ‖X‖" };
const hasMeasure = (name, s) => result.prompt.some((token) => isNumber(token[name][s]));
const available = Object.keys(MEASURES).filter((name) => sublayers.some((one, s) => hasMeasure(name, s)));
const view = { measure: available[0], sublayer: 0 };

/* Indices of the sublayers that have the measure. */
const shown = () => sublayers.map((one, s) => s).filter((s) => hasMeasure(view.measure, s));
const valuesOf = (s) => result.prompt.map((token) => token[view.measure][s]);

/* Gates have a scale of their own; steps that of all tokens and sublayers, from 0. */
const scaleOfView = () => (view.measure === "gates" ? gateScale(sublayers) : { low: 0, high: rangeOf(shown().flatMap(valuesOf)).high });

/* ---- the text, colored by one sublayer ---- */

function coloredText() {
  const scale = scaleOfView();
  const s = shown().includes(view.sublayer) ? view.sublayer : shown()[0];
  const select = element("select", { "aria-label": "sublayer" },
    shown().map((i) => element("option", { value: i, selected: i === s ? "" : null }, `layer ${labelOf(sublayers[i])}`)));
  select.addEventListener("change", () => {
    view.sublayer = Number(select.value);
    drawAll();
    placeDrawings();
  });
  const cells = result.prompt.map((token) => {
    const value = token[view.measure][s];
    return [element("span", { title: `${visible(token.text)}: ${precise(value)}` }, visible(token.text)), value];
  });
  const text = element("div", { class: "tokens" }, cells.map(([node]) => node));
  paintCells(cells, scale);
  return [element("p", { class: "control" }, element("label", {}, "Sublayer ", select)), legendOf(scale, view.measure === "gates" ? "gate" : "step"), text];
}

/* ---- all sublayers ---- */

function heatTable() {
  const cells = [];
  const cell = (value) => {
    cells.push([element("td", { class: "cell" }, fixed(value, 2)), value]);
    return cells[cells.length - 1][0];
  };
  const heads = element("tr", {}, element("th", { scope: "col", class: "text" }, "token"),
    shown().map((s) => element("th", { scope: "col" }, labelOf(sublayers[s]))));
  const rows = result.prompt.map((token) => element("tr", {}, element("th", { scope: "row", class: "text" }, visible(token.text)),
    shown().map((s) => cell(token[view.measure][s]))));
  paintCells(cells, scaleOfView());
  return scrollBox(element("table", {}, element("caption", {}, `${MEASURES[view.measure]} of each token in each sublayer`),
    element("thead", {}, heads), element("tbody", {}, rows)), "token by sublayer");
}

/* The mean over the prompt, sublayer by sublayer. */
function depthChart() {
  const list = shown();
  return chart({
    label: `${MEASURES[view.measure]} by sublayer`, height: 260,
    caption: "Mean over the tokens of the prompt; the band is from the lowest to the highest token.",
  }, () => {
    const points = list.map((s, i) => {
      const values = valuesOf(s).filter(isNumber);
      return { x: i, y: values.reduce((sum, value) => sum + value, 0) / values.length, low: Math.min(...values), high: Math.max(...values) };
    });
    const made = lineChart({ series: [{ name: "mean", points }], x: { title: "sublayer", min: 0, max: Math.max(1, list.length - 1) }, y: view.measure === "gates" ? { title: "gate", min: 0, max: scaleOfView().high, bounds: "data" } : { title: "step", min: 0 } });
    made.options.scales.x.ticks = { stepSize: 1, autoSkip: true, maxRotation: 60, callback: (value) => (isPresent(list[value]) ? labelOf(sublayers[list[value]]) : null) };
    return made;
  }).node;
}

const body = element("div", {});
function drawAll() {
  drawings.length = 0;
  body.replaceChildren(
    element("section", {}, element("h2", {}, "The prompt"), ...coloredText()),
    element("section", {}, element("h2", {}, "Every sublayer"), row(heatTable(), depthChart())));
}

startHeader(data.title, data.made);
main.append(facts([["loss (nats)", fixed(result.loss, 4)], ["tokens", count(result.tokens)], ["sublayers", String(sublayers.length)],
  result.saved_model ? ["saved model", result.saved_model.name] : null]));
if (available.length > 1) {
  main.append(radio("Color", available.map((name) => [name, name === "gates" ? "gate" : "size of the step"]), view.measure, (value) => {
    view.measure = value;
    drawAll();
    placeDrawings();
  }));
}
main.append(body);
drawAll();
startPage();
