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

function shade(node, value, range) {
  if (!isNumber(value)) return node;
  const share = shareOf(value, range);
  node.style.background = rampColor(share);
  node.style.color = rampText(share);
  return node;
}

/* ---- the text, colored by one sublayer ---- */

function coloredText() {
  const range = rangeOf(shown().flatMap(valuesOf));
  const s = shown().includes(view.sublayer) ? view.sublayer : shown()[0];
  const select = element("select", { "aria-label": "sublayer" },
    shown().map((i) => element("option", { value: i, selected: i === s ? "" : null }, `layer ${labelOf(sublayers[i])}`)));
  select.addEventListener("change", () => {
    view.sublayer = Number(select.value);
    drawAll();
    placeDrawings();
  });
  const text = element("div", { class: "tokens" }, result.prompt.map((token) => {
    const value = token[view.measure][s];
    return shade(element("span", { title: `${visible(token.text)}: ${precise(value)}` }, visible(token.text)), value, range);
  }));
  return [element("p", { class: "control" }, element("label", {}, "Sublayer ", select)), legendOf(range, view.measure === "gates" ? "gate" : "step"), text];
}

/* ---- all sublayers ---- */

function heatTable() {
  const range = rangeOf(shown().flatMap(valuesOf));
  const heads = element("tr", {}, element("th", { scope: "col", class: "text" }, "token"),
    shown().map((s) => element("th", { scope: "col" }, labelOf(sublayers[s]))));
  const rows = result.prompt.map((token) => element("tr", {}, element("th", { scope: "row", class: "text" }, visible(token.text)),
    shown().map((s) => shade(element("td", { class: "cell" }, fixed(token[view.measure][s], 2)), token[view.measure][s], range))));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "token by sublayer" },
    element("table", {}, element("caption", {}, `${MEASURES[view.measure]} of each token in each sublayer`), element("thead", {}, heads), element("tbody", {}, rows)));
}

/* The mean over the prompt, sublayer by sublayer. */
function depthChart() {
  const list = shown();
  const ranges = list.map((s) => rangeOf(valuesOf(s)));
  return chart({
    label: `${MEASURES[view.measure]} by sublayer`, height: 260,
    caption: "Mean over the tokens of the prompt; the band is from the lowest to the highest token.",
  }, () => {
    const points = list.map((s, i) => {
      const values = valuesOf(s).filter(isNumber);
      return { x: i, y: values.reduce((sum, value) => sum + value, 0) / values.length, low: ranges[i].low, high: ranges[i].high };
    });
    const made = lineChart({ series: [{ name: "mean", points }], x: { title: "sublayer", min: 0, max: Math.max(1, list.length - 1) }, y: { title: view.measure === "gates" ? "gate" : "step" } });
    made.options.scales.x.ticks = { stepSize: 1, autoSkip: true, maxRotation: 60, callback: (value) => (isPresent(list[value]) ? labelOf(sublayers[list[value]]) : null) };
    return made;
  }).node;
}

const body = element("div", {});
function drawAll() {
  drawings.length = 0;
  body.replaceChildren(
    element("section", {}, element("h2", {}, "The prompt"), ...coloredText()),
    element("section", {}, element("h2", {}, "Over depth"), depthChart()),
    element("section", {}, element("h2", {}, "Every sublayer"), heatTable()));
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
