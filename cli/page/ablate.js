/* The page of ddl ablate --html: the increase in loss for each sublayer that is changed. data.result is the object that
 * --json prints, its sublayers sorted by the increase. */
"use strict";

const result = data.result;
const ranked = result.sublayers.map((row, i) => ({ ...row, rank: i + 1 }));
const ordered = [...ranked].sort((a, b) => a.layer - b.layer || (a.sub < b.sub ? -1 : 1));
const view = { order: "rank" };

function bars() {
  const drawn = chart({
    label: "Increase in loss by sublayer", height: Math.max(160, 70 + 20 * ranked.length),
    caption: `Loss with the sublayer changed minus the loss of the unchanged model, ${fixed(result.loss, 4)} nats on ${count(result.tokens)} tokens.`,
  }, () => {
    const rows = view.order === "rank" ? ranked : ordered;
    const subs = [...new Set(ordered.map((row) => row.sub))];
    return {
      type: "bar",
      data: {
        labels: rows.map((row) => `${row.layer} ${row.sub}`),
        datasets: subs.map((sub) => {
          const i = sub === "attn" ? 0 : 1;
          return {
            label: sub === "attn" ? "attention" : "MLP", data: rows.map((row) => (row.sub === sub ? row.increase : null)),
            backgroundColor: seriesColor(i), grouped: false, barPercentage: 0.8,
          };
        }),
      },
      options: {
        indexAxis: "y",
        scales: {
          x: axis({ title: "increase in loss (nats)" }),
          y: { ...categories(), ticks: { autoSkip: false } },
        },
        plugins: {
          legend: { position: "bottom", labels: { boxWidth: 14 } },
          tooltip: { callbacks: { label: (item) => `${precise(item.raw)} nats (${rows[item.dataIndex].force})` } },
        },
      },
    };
  });
  return [radio("Order", [["rank", "by increase"], ["layer", "by layer"]], view.order, (value) => {
    view.order = value;
    drawn.redraw();
  }), drawn.node];
}

function ranking() {
  return table([
    { title: "rank", cell: (row) => String(row.rank) },
    { title: "sublayer", text: true, cell: (row) => `${row.layer} ${row.sub}` },
    { title: "increase", cell: (row) => fixed(row.increase, 6) },
    { title: "loss", cell: (row) => fixed(row.loss, 6) },
    { title: "rule", text: true, cell: (row) => row.rule },
    { title: "change", text: true, cell: (row) => row.force },
  ], ranked, { caption: `Sorted by the increase in loss${ranked.every((row) => isNumber(row.loss)) ? "" : `; ${MISSING} marks a loss that is not finite`}` });
}

startHeader(data.title, data.made);
if (!result.complete) main.append(note("The command was interrupted: some sublayers are missing."));
main.append(facts([["loss (nats)", fixed(result.loss, 4)], ["tokens", count(result.tokens)], ["sublayers", String(ranked.length)],
  result.saved_model ? ["saved model", result.saved_model.name] : null]));
const [order, figure] = bars();
section("Increase in loss", order, row(figure, ranking()));
startPage();
