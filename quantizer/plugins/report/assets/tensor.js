/* The card of a tensor: histogram with limits and zero point, who made it. */
const tensorAt = new Map(data.tensors.map((t, at) => [t.n, at]));
const tensorCard = byId("tensor-card");
const HIST = { width: 460, left: 66, right: 8, top: 18, bars: 120, row: 15 };

function drawHistogram(t) {
  const [start, width, counts] = t.h;
  const choices = [];
  const limits = t.q ? [t.q[3], t.q[4]] : null;
  if (limits) choices.push({ name: "plan", low: limits[0], high: limits[1] });
  const observed = t.r[1] - t.r[0] || Math.abs(t.r[1]) || 1;
  let low = Math.min(t.r[0], 0), high = Math.max(t.r[1], 0);
  if (limits) { low = Math.max(Math.min(low, limits[0]), low - 2 * observed); high = Math.min(Math.max(high, limits[1]), high + 2 * observed); }
  if (!(high > low)) high = low + 1;
  const inner = HIST.width - HIST.left - HIST.right, base = HIST.top + HIST.bars;
  const x = (v) => HIST.left + inner * Math.min(1, Math.max(0, (v - low) / (high - low)));
  const top = Math.log1p(Math.max(...counts)) || 1;
  const parts = [];
  if (limits) {
    if (limits[0] > low) parts.push(svg("rect", { class: "shade", x: HIST.left, y: HIST.top, width: x(limits[0]) - HIST.left, height: HIST.bars }));
    if (limits[1] < high) parts.push(svg("rect", { class: "shade", x: x(limits[1]), y: HIST.top, width: HIST.width - HIST.right - x(limits[1]), height: HIST.bars }));
  }
  counts.forEach((count, at) => {
    if (!count) return;
    const from = start + at * width, to = from + width, middle = (from + to) / 2;
    const height = Math.max(1.5, (HIST.bars * Math.log1p(count)) / top);
    const out = limits && (middle < limits[0] || middle > limits[1]);
    parts.push(svg("rect", { class: out ? "out" : "b", x: x(from).toFixed(1), y: (base - height).toFixed(1), width: Math.max(0.8, x(to) - x(from) - 0.4).toFixed(1), height: height.toFixed(1) },
      svg("title", {}, `${num(from)} to ${num(to)}: ${count.toLocaleString("en")}`)));
  });
  parts.push(svg("line", { class: "axis", x1: HIST.left, x2: HIST.width - HIST.right, y1: base, y2: base }));
  parts.push(svg("line", { class: "zero", x1: x(0), x2: x(0), y1: HIST.top - 4, y2: base }));
  if (limits) {
    for (const [side, anchor, place] of [[limits[0], "start", 3], [limits[1], "end", -3]]) {
      parts.push(svg("line", { class: "lim", x1: x(side), x2: x(side), y1: HIST.top - 4, y2: base }));
      parts.push(svg("text", { x: x(side) + place, y: 10, "text-anchor": anchor }, num(side)));
    }
  }
  parts.push(svg("text", { x: HIST.left, y: base + 13 }, num(low)));
  parts.push(svg("text", { x: HIST.width - HIST.right, y: base + 13, "text-anchor": "end" }, num(high)));
  const zeroAt = x(0);
  if (zeroAt > HIST.left + 50 && zeroAt < HIST.width - 60) parts.push(svg("text", { x: zeroAt, y: base + 13, "text-anchor": "middle" }, t.q ? `0 is ${t.q[2]}` : "0"));
  let y = base + 30;
  for (const choice of choices) {
    const on = choice.name === "plan" ? " on" : "";
    parts.push(svg("line", { class: "cal" + on, x1: x(choice.low), x2: Math.max(x(choice.high), x(choice.low) + 1), y1: y, y2: y }));
    parts.push(svg("text", { x: HIST.left - 8, y: y + 4, "text-anchor": "end" }, choice.name));
    y += HIST.row;
  }
  const words = `Histogram of ${t.n}, logarithmic heights` + (limits ? `; the plan represents ${num(limits[0])} to ${num(limits[1])}` : "");
  return svg("svg", { class: "hist", viewBox: `0 0 ${HIST.width} ${y}`, role: "img", "aria-label": words }, parts);
}

function binsTable(t) {
  const [start, width, counts] = t.h;
  const rows = counts.map((count, at) => (count ? el("tr", {}, el("td", { class: "n" }, num(start + at * width)), el("td", { class: "n" }, num(start + (at + 1) * width)), el("td", { class: "n" }, count.toLocaleString("en"))) : null));
  const head = el("tr", {}, ["from", "to", "values"].map((word) => el("th", { scope: "col", class: "n" }, word)));
  const part = el("details", {}, el("summary", {}, "Histogram as a table"));
  part.addEventListener("toggle", () => {
    if (part.children.length === 1) part.append(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Histogram as a table" }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows))));
  });
  return part;
}

function nodeLinks(names) {
  return names.map((name, at) => [at ? ", " : null, nodeAt.has(name) ? el("button", { type: "button", class: "link", onclick: () => showNode(nodeAt.get(name), true) }, name) : name]);
}

function showTensor(at, move) {
  const t = data.tensors[at];
  if (!tensorCard) return;
  const pairs = [
    ["values", `${t.c[0].toLocaleString("en")}, ${pct(t.c[0] ? t.c[1] / t.c[0] : 0)} zeros${t.c[2] ? `, ${t.c[2]} NaN or infinite` : ""}`],
    ["observed", `${num(t.r[0], 6)} to ${num(t.r[1], 6)}`],
    t.q ? ["quantized", `${t.q[0]}, scale ${num(t.q[1])}, zero point ${t.q[2]}`] : ["quantized", "no, stays float"],
    t.q ? ["clipped", pct(t.q[5]) + (t.f ? `, on purpose: only ${t.f} reads it, which is flat there` : "")] : null,
    t.m !== undefined ? ["SQNR here", `${db(t.m)}, with upstream noise`] : null,
    t.by[0] ? ["made by", nodeLinks([t.by[0]])] : ["made by", "an input of the model"],
    t.to.length ? ["read by", nodeLinks(t.to)] : null,
    t.eq ? ["note", "its channels are equalized: the histogram is estimated"] : null,
  ];
  tensorCard.replaceChildren(
    el("h3", { title: t.n }, t.n), el("p", { class: "muted" }, `${t.by[1]}, ${t.s}`),
    t.h ? drawHistogram(t) : null || "", list(pairs),
    t.h ? binsTable(t) : "");
  for (const row of document.querySelectorAll("#tensor-table tr.chosen")) row.classList.remove("chosen");
  const row = document.querySelector(`#tensor-table tr[data-tensor="${at}"]`);
  if (row) row.classList.add("chosen");
  if (move) tensorCard.scrollIntoView({ block: "nearest" });
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-show]");
  if (button) showTensor(Number(button.dataset.show), true);
});
