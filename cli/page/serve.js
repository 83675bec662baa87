/* The page of ddl serve: text as it is generated, the candidates of every token, the gates of every sublayer and token,
 * the same prompt with another model or with forced gates, and the update as a drawing. */
"use strict";

const $ = (id) => document.getElementById(id);
const TOP = 5;

/* A new element with attributes and children; strings become text. */
function element(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const show = (text) => ($("status").textContent = text);

/* ---- the server ---- */

function headers() {
  const key = $("key").value;
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function errorOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered with status ${response.status}`;
  }
}

async function loadModels() {
  const response = await fetch("v1/models", { headers: headers() });
  if (response.status === 401) {
    $("key-label").hidden = false;
    show("This server needs a key.");
    return;
  }
  if (!response.ok) throw new Error(await errorOf(response));
  const names = (await response.json()).data.map((model) => model.id);
  $("model").replaceChildren(...names.map((name) => element("option", {}, name)));
  $("other").replaceChildren(element("option", { value: "" }, "nothing"), ...names.map((name) => element("option", {}, name)));
  show(`${names.length === 1 ? "One model" : `${names.length} models`}: ${names.join(", ")}`);
}

/* Calls `each` with every event of a stream; returns its end. */
async function readEvents(response, each) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  for (let left = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    left += decoder.decode(value, { stream: true });
    const events = left.split("\n\n");
    left = events.pop();
    for (const event of events) {
      const data = event.startsWith("data: ") ? event.slice(6) : null;
      if (data && data !== "[DONE]") each(JSON.parse(data));
    }
  }
}

/* ---- one output: text, candidates, gates ---- */

/* The color of a gate: 0, 1 and 2 are the ends and the middle of the scale. */
function gateColor(value) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim().match(/\w\w/g).map((hex) => parseInt(hex, 16));
  const [low, middle, high] = [color("--heat-low"), color("--heat-middle"), color("--heat-high")];
  const [from, to, share] = value < 1 ? [low, middle, value] : [middle, high, value - 1];
  const t = Math.min(Math.max(share, 0), 1);
  return `rgb(${from.map((c, i) => Math.round(c + t * (to[i] - c))).join(",")})`;
}

const mean = (value) => (Array.isArray(value) ? value.reduce((a, b) => a + b, 0) / value.length : value);
const short = (value) => [].concat(value).slice(0, 4).map((x) => x.toFixed(3)).join(" ") + ([].concat(value).length > 4 ? " …" : "");

/* The bytes of a token of /v1/completions, whose name is "bytes:\xe2\x80" where it is no text. */
const bytesOf = (name) => (/^bytes:(\\x[0-9a-f]{2})+$/.test(name)
  ? Uint8Array.from(name.split("\\x").slice(1), (digits) => parseInt(digits, 16)) : new TextEncoder().encode(name));

class Output {
  constructor(title) {
    this.tokens = []; /* {name, bytes, text, logprob, top} */
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true }); /* of all tokens: they may end within a character */
    this.sublayers = []; /* {name, tensors} */
    this.chosen = { row: 0, column: 0 };
    this.text = element("div", { class: "text" });
    this.canvas = element("canvas", { tabindex: "0", role: "img", width: "0", height: "0" });
    this.detail = element("div", { class: "detail", role: "status", "aria-live": "polite" });
    this.map = element("div", { class: "map" }, this.canvas);
    this.node = element("div", { class: "output" }, element("h2", {}, title), this.text, this.map, this.detail);
    this.canvas.addEventListener("click", (event) => {
      this.choose(Math.floor(event.offsetY / this.cell), Math.floor(event.offsetX / this.cell));
    });
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      this.choose(this.chosen.row + step[0], this.chosen.column + step[1]);
    });
  }

  /* What an event of the stream adds. */
  add(choice) {
    const logprobs = choice.logprobs;
    const added = !logprobs ? []
      : logprobs.content
        ? logprobs.content.map((t) => ({ name: t.token, bytes: Uint8Array.from(t.bytes), logprob: t.logprob, top: t.top_logprobs.map((c) => [c.token, c.logprob]) }))
        : logprobs.tokens.map((name, i) => ({
            name, bytes: bytesOf(name), logprob: logprobs.token_logprobs[i],
            top: Object.entries(logprobs.top_logprobs[i] || {}).sort((a, b) => b[1] - a[1]),
          }));
    if (choice.ddl) this.addTraces(choice.ddl);
    for (const token of added) this.addToken(token);
    this.draw();
  }

  addToken(token) {
    const index = this.tokens.length;
    token.text = this.decoder.decode(token.bytes, { stream: true });
    const node = element("span", { class: "token" }, token.text);
    if (token.logprob !== null) {
      const share = Math.exp(token.logprob);
      node.style.borderBottomColor = `color-mix(in srgb, var(--accent) ${Math.round(100 * share)}%, transparent)`;
    } else {
      node.classList.add("prompt");
    }
    node.addEventListener("click", () => this.choose(this.chosen.row, index + (this.offset || 0)));
    token.node = node;
    this.tokens.push(token);
    this.text.append(node);
  }

  addTraces(ddl) {
    ddl.sublayers.forEach((sublayer, s) => {
      const { layer, sublayer: sub, ...tensors } = sublayer;
      const row = (this.sublayers[s] ||= { name: `${layer}.${sub}`, tensors: {} });
      for (const [name, values] of Object.entries(tensors)) row.tensors[name] = (row.tensors[name] || []).concat(values);
    });
  }

  /* The tensor that the map shows: the gate, or else the size of the update. */
  valuesOf(sublayer) {
    return sublayer.tensors.beta || sublayer.tensors.step || Object.values(sublayer.tensors)[0] || [];
  }

  draw() {
    const columns = Math.max(0, ...this.sublayers.map((s) => this.valuesOf(s).length));
    this.cell = columns > 120 ? 6 : 12;
    const [width, height] = [columns * this.cell, this.sublayers.length * this.cell];
    this.canvas.width = width;
    this.canvas.height = height;
    this.canvas.setAttribute("aria-label", `gates of ${this.sublayers.length} sublayers and ${columns} tokens; arrow keys choose one`);
    const context = this.canvas.getContext("2d");
    this.sublayers.forEach((sublayer, row) => {
      this.valuesOf(sublayer).forEach((value, column) => {
        context.fillStyle = gateColor(mean(value));
        context.fillRect(column * this.cell, row * this.cell, this.cell - 1, this.cell - 1);
      });
    });
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--text");
    if (columns) context.strokeRect(this.chosen.column * this.cell + 0.5, this.chosen.row * this.cell + 0.5, this.cell - 2, this.cell - 2);
  }

  choose(row, column) {
    const columns = Math.max(1, ...this.sublayers.map((s) => this.valuesOf(s).length), this.tokens.length + (this.offset || 0));
    this.chosen = {
      row: Math.min(Math.max(row, 0), Math.max(this.sublayers.length - 1, 0)),
      column: Math.min(Math.max(column, 0), columns - 1),
    };
    this.tokens.forEach((token, i) => token.node.classList.toggle("chosen", i + (this.offset || 0) === this.chosen.column));
    this.draw();
    this.describe();
  }

  fail(message) {
    this.detail.append(element("p", { class: "error", role: "alert" }, message));
  }

  describe() {
    const token = this.tokens[this.chosen.column - (this.offset || 0)];
    const sublayer = this.sublayers[this.chosen.row];
    const parts = [];
    if (token) {
      const rows = token.top.map(([text, logprob]) =>
        element("tr", {}, element("td", {}, JSON.stringify(text)), element("td", {}, `${(100 * Math.exp(logprob)).toFixed(1)} %`)));
      parts.push(element("p", {}, `token ${this.chosen.column}: ${JSON.stringify(token.text || token.name)}`), element("table", {}, ...rows));
    }
    if (sublayer) {
      const values = Object.entries(sublayer.tensors).filter(([, v]) => v.length > this.chosen.column);
      parts.push(element("p", {}, `sublayer ${sublayer.name}: ` + values.map(([name, v]) => `${name} ${short(v[this.chosen.column])}`).join(", ")));
    }
    this.detail.replaceChildren(...parts);
  }
}

/* ---- generating ---- */

let abort = null;

function requestOf(model, force) {
  const number = (id) => Number($(id).value);
  const body = {
    model, max_tokens: number("max_tokens"), temperature: number("temperature"), top_p: number("top_p"), top_k: number("top_k"),
    seed: number("seed"), stream: true, stream_options: { include_usage: true }, ddl: true,
  };
  if (force) body.ddl_force = `layers=${$("force-layers").value},beta=${$("beta").value}`;
  if ($("mode").value === "chat") {
    return { path: "v1/chat/completions", body: { ...body, messages: [{ role: "user", content: $("prompt").value }], logprobs: true, top_logprobs: TOP } };
  }
  return { path: "v1/completions", body: { ...body, prompt: $("prompt").value, echo: true, logprobs: TOP } };
}

/* Whether all of it was received. */
async function generate(model, force, signal) {
  const output = new Output(force ? `${model}, β = ${$("beta").value}` : model);
  $("outputs").append(output.node);
  const { path, body } = requestOf(model, force);
  const response = await fetch(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
  if (!response.ok) {
    output.fail(await errorOf(response));
    return false;
  }
  let complete = true;
  await readEvents(response, (event) => {
    if (event.error) {
      output.fail(event.error.message);
      complete = false;
      return;
    }
    if (event.usage && body.messages) output.offset = event.usage.prompt_tokens;
    const choice = event.choices[0];
    if (!choice) return;
    if (choice.ddl && body.messages && output.offset === undefined) {
      /* An estimate until the usage comes: further tokens may be held back. */
      const columns = choice.ddl.sublayers[0] ? output.valuesOf({ tensors: choice.ddl.sublayers[0] }).length : 0;
      output.offset = Math.max(0, columns - choice.logprobs.content.length + 1);
    }
    output.add(choice);
  });
  if (complete) output.choose(output.chosen.row, output.chosen.column);
  return complete;
}

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  abort = new AbortController();
  $("run").disabled = true;
  $("stop").disabled = false;
  $("outputs").replaceChildren();
  show("generating");
  try {
    const model = $("model").value;
    const runs = [generate(model, false, abort.signal)];
    if ($("other").value) runs.push(generate($("other").value, false, abort.signal));
    if ($("force").checked) runs.push(generate(model, true, abort.signal));
    const complete = (await Promise.all(runs)).every(Boolean);
    show(complete ? "done" : "failed");
  } catch (error) {
    show(error.name === "AbortError" ? "stopped" : error.message);
  }
  $("run").disabled = false;
  $("stop").disabled = true;
});

$("stop").addEventListener("click", () => abort.abort());
$("key").addEventListener("change", () => loadModels().catch((error) => show(error.message)));
$("mode").addEventListener("change", () => {
  $("prompt-label").textContent = $("mode").value === "chat" ? "Message" : "Text to continue";
});
$("beta").addEventListener("input", () => ($("beta-value").textContent = Number($("beta").value).toFixed(2)));
$("force-layers").replaceChildren(element("option", { value: "all" }, "all layers"),
  ...Array.from({ length: 12 }, (_, i) => element("option", { value: i }, `layer ${i}`)));

/* ---- the drawing ---- */

const STATE = [70, -45];

function line(kind, from, to) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const ends = { class: kind, x1: from[0], y1: from[1], x2: to[0], y2: to[1] };
  for (const [key, value] of Object.entries(ends)) node.setAttribute(key, value);
  return node;
}

function label(at, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "text");
  node.setAttribute("x", at[0] + 4);
  node.setAttribute("y", at[1] - 4);
  node.textContent = text;
  return node;
}

function drawOperator() {
  const beta = Number($("operator-beta").value);
  const angle = (-Number($("operator-angle").value) * Math.PI) / 180;
  const k = [Math.cos(angle), Math.sin(angle)];
  const readout = k[0] * STATE[0] + k[1] * STATE[1];
  const result = STATE.map((x, i) => x - beta * readout * k[i]);
  const far = (length) => k.map((x) => x * length);
  $("operator").replaceChildren(
    line("axis", [-105, 0], [105, 0]), line("axis", [0, -105], [0, 105]), line("direction", far(-100), far(100)),
    line("change", STATE, result), line("state", [0, 0], STATE), line("result", [0, 0], result),
    label(far(95), "k"), label(STATE, "X"), label(result, "X′"));
  const what = beta < 0.005 ? "the identity" : Math.abs(beta - 1) < 0.005 ? "a projection: nothing is left along k"
    : beta > 1.995 ? "a reflection" : beta < 1 ? "the part along k shrinks" : "the part along k shrinks and changes its sign";
  $("operator-text").textContent = `β = ${beta.toFixed(2)}: ${what}; the factor along k is ${(1 - beta).toFixed(2)}`;
}

$("operator-beta").addEventListener("input", drawOperator);
$("operator-angle").addEventListener("input", drawOperator);
drawOperator();
loadModels().catch((error) => show(error.message));
