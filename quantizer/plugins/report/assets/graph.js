/* The map of all nodes, the graph around one of them, and the card of a node. */
const nodes = data.nodes;
const nodeAt = new Map(nodes.names.map((name, at) => [name, at]));
const readers = nodes.names.map(() => []);
nodes.rows.forEach((row, at) => row[7].forEach((maker) => readers[maker].push(at)));
const INT = new Set(["quantized", "lookup-table", "pass-through", "dynamic"]);
const node = (at) => {
  const r = nodes.rows[at];
  return { at, name: nodes.names[at], op: nodes.words[r[0]], kind: nodes.words[r[1]], why: nodes.words[r[2]], float: r[3], planned: r[4], macs: r[5], noise: r[6], makers: r[7], isInt: INT.has(nodes.words[r[1]]) };
};
const hasNoise = document.querySelector('input[name="colour"][value="noise"]') !== null;
const colour = { mode: hasNoise ? "noise" : "kind", chosen: -1 };
const most = { noise: Math.max(1e-9, ...nodes.rows.map((r) => r[6] || 0)), time: Math.max(1e-9, ...nodes.rows.map((r) => r[4] || 0)) };
const STEPS = ["--rail", "--h1", "--h2", "--h3", "--h4"];

/* Of noise and time: five steps of the root of the share of the largest. */
function level(n) {
  const value = colour.mode === "noise" ? n.noise : n.planned;
  return value ? 1 + Math.min(3, Math.floor(4 * Math.sqrt(value / most[colour.mode]))) : 0;
}
const paint = (n) => (colour.mode === "kind" ? (n.isInt ? "var(--int-soft)" : "var(--float-soft)") : `var(${STEPS[level(n)]})`);
const figureOf = (n) => (colour.mode === "noise" ? (n.noise ? pct(n.noise) + " noise" : "") : colour.mode === "time" ? duration(n.planned) : n.kind);

function drawLegend() {
  const words = colour.mode === "kind" ? [["--int-soft", "on integers (solid border, tall in the map)"], ["--float-soft", "float (dashed border, low in the map)"]]
    : STEPS.map((step, at) => [step, at ? (colour.mode === "noise" ? "up to " + pct(most.noise * (at / 4) ** 2) : "up to " + duration(most.time * (at / 4) ** 2)) : "none"]);
  byId("graph-legend").replaceChildren(...words.map(([name, text]) => {
    const sign = el("i", {});
    sign.style.background = `var(${name})`;
    return el("span", {}, sign, text);
  }));
}

function drawMap() {
  const map = byId("map"), count = nodes.names.length;
  const columns = Math.max(24, Math.min(count, 140, Math.ceil(Math.sqrt(count * 12)))), size = 1000 / columns;
  const rowHeight = Math.min(size, 26);
  map.setAttribute("viewBox", `0 0 1000 ${(Math.ceil(count / columns) * rowHeight + 2).toFixed(1)}`);
  map.replaceChildren(...nodes.names.map((name, at) => {
    const n = node(at), low = n.isInt ? 0 : rowHeight * 0.35, gap = Math.min(1.2, size * 0.12);
    const cell = svg("rect", { x: ((at % columns) * size).toFixed(1), y: (Math.floor(at / columns) * rowHeight + low + 1).toFixed(1), width: (size - gap).toFixed(1), height: (rowHeight - low - gap).toFixed(1), "data-at": at, class: at === colour.chosen ? "on" : null }, svg("title", {}, `${name}: ${n.op}, ${n.kind}, ${hasNoise ? `${pct(n.noise)} of the noise, ` : ""}${duration(n.planned)}`));
    cell.style.fill = paint(n);
    return cell;
  }));
}

/* The nodes near one: a few steps up and down, the nearest first. */
function around(at, limit) {
  const found = new Set([at]);
  let edge = [at];
  while (edge.length && found.size < limit) {
    const next = [];
    for (const near of edge) {
      for (const other of [...nodes.rows[near][7], ...readers[near]]) {
        if (!found.has(other) && found.size < limit) { found.add(other); next.push(other); }
      }
    }
    edge = next;
  }
  return Array.from(found).sort((a, b) => a - b);
}

/* Layers by the longest path, with a place in every layer that an edge passes; order by the mean of neighbours. */
function layered(chosen) {
  const inside = new Set(chosen), depth = new Map(), layers = [], edges = [];
  for (const at of chosen) depth.set(at, 1 + Math.max(-1, ...nodes.rows[at][7].filter((m) => inside.has(m)).map((m) => depth.get(m))));
  for (const at of chosen) {
    const below = readers[at].filter((r) => inside.has(r)).map((r) => depth.get(r));
    if (!nodes.rows[at][7].some((m) => inside.has(m)) && below.length) depth.set(at, Math.min(...below) - 1);
  }
  const place = (key, layer, at) => { const spot = { key, layer, at, up: [], down: [], x: 0 }; (layers[layer] ||= []).push(spot); return spot; };
  const spots = new Map(chosen.map((at) => [at, place(at, depth.get(at), at)]));
  for (const at of chosen) {
    for (const maker of new Set(nodes.rows[at][7].filter((m) => inside.has(m)))) {
      const path = [spots.get(maker)];
      for (let layer = depth.get(maker) + 1; layer < depth.get(at); layer++) path.push(place(`${maker}-${at}`, layer, -1));
      path.push(spots.get(at));
      for (let i = 1; i < path.length; i++) { path[i - 1].down.push(path[i]); path[i].up.push(path[i - 1]); }
      edges.push(path);
    }
  }
  const mean = (list, otherwise) => (list.length ? list.reduce((sum, s) => sum + s.order, 0) / list.length : otherwise);
  layers.forEach((layer) => layer.forEach((spot, order) => { spot.order = order; }));
  for (let sweep = 0; sweep < 8; sweep++) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      layer.forEach((spot) => { spot.key2 = mean(down ? spot.up : spot.down, spot.order); });
      layer.sort((a, b) => a.key2 - b.key2).forEach((spot, order) => { spot.order = order; });
    }
  }
  return { layers, edges, spots };
}

const BOX = { width: 190, height: 44, gap: 20, layer: 30, thin: 26 };

function place(layout) {
  const widthOf = (spot) => (spot.at < 0 ? BOX.thin : BOX.width);
  for (const layer of layout.layers) { let x = 0; for (const spot of layer) { spot.x = x; x += widthOf(spot) + BOX.gap; } }
  const middle = (spot) => spot.x + widthOf(spot) / 2;
  for (let sweep = 0; sweep < 12; sweep++) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layout.layers : [...layout.layers].reverse()) {
      const wish = layer.map((spot) => { const near = down ? spot.up : spot.down; return near.length ? near.reduce((sum, s) => sum + middle(s), 0) / near.length - widthOf(spot) / 2 : spot.x; });
      const right = [];
      layer.forEach((spot, i) => { right.push(i ? Math.max(wish[i], right[i - 1] + widthOf(layer[i - 1]) + BOX.gap) : wish[i]); });
      const shift = right.reduce((sum, x, i) => sum + wish[i] - x, 0) / layer.length;
      layer.forEach((spot, i) => { spot.x = right[i] + shift; });
    }
  }
  const all = layout.layers.flat(), left = Math.min(...all.map((s) => s.x));
  for (const spot of all) spot.x += 12 - left;
  return { width: Math.max(...all.map((s) => s.x + widthOf(s))) + 12, middle };
}

/* The end of a name, which tells nodes apart; without the operator, which stands above it. */
function shortName(n) {
  const name = n.name.endsWith("/" + n.op) ? n.name.slice(0, -n.op.length - 1) : n.name;
  return name.length > 29 ? "…" + name.slice(-28) : name;
}

function drawGraph(at) {
  const chosen = around(at, 44), layout = layered(chosen), { width, middle } = place(layout);
  const top = (spot) => 12 + spot.layer * (BOX.height + BOX.layer);
  const lines = layout.edges.map((path) => {
    let d = `M${middle(path[0]).toFixed(1)} ${top(path[0]) + BOX.height}`;
    for (let i = 1; i < path.length; i++) {
      const y0 = top(path[i - 1]) + BOX.height, y1 = top(path[i]), h = (y0 + y1) / 2, x0 = middle(path[i - 1]).toFixed(1), x1 = middle(path[i]).toFixed(1);
      d += `C${x0} ${h} ${x1} ${h} ${x1} ${y1}` + (path[i].at < 0 ? `V${y1 + BOX.height}` : "");
    }
    return svg("path", { class: "edge", d });
  });
  const boxes = chosen.map((other) => {
    const n = node(other), spot = layout.spots.get(other), y = top(spot);
    const box = svg("rect", { class: "box", x: spot.x.toFixed(1), y, width: BOX.width, height: BOX.height, rx: 7 }, svg("title", {}, `${n.name}: ${n.op}, ${n.kind}`));
    box.style.fill = paint(n);
    const dark = colour.mode !== "kind" && level(n) === 4 ? " dark" : "";
    const more = nodes.rows[other][7].length + readers[other].length > spot.up.length + spot.down.length ? " …" : "";
    const open = () => showNode(other);
    return svg("g", { class: `node ${n.isInt ? "int" : "float"}${other === at ? " on" : ""}`, tabindex: 0, role: "button", "aria-pressed": String(other === at), "data-at": other, onclick: open, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); byId("graph-view").querySelector(".node.on").focus(); } } },
      box,
      svg("text", { class: "name" + dark, x: spot.x + 9, y: y + 18 }, n.op + more),
      svg("text", { class: "small" + dark, x: spot.x + BOX.width - 9, y: y + 18, "text-anchor": "end" }, figureOf(n)),
      svg("text", { class: "small" + dark, x: spot.x + 9, y: y + 34 }, shortName(n)));
  });
  const height = 24 + layout.layers.length * (BOX.height + BOX.layer) - BOX.layer;
  const holder = byId("graph-view");
  holder.replaceChildren(svg("svg", { width: Math.ceil(width), height: Math.ceil(height), role: "group", "aria-label": `Graph around ${nodes.names[at]}, ${chosen.length} nodes` }, lines, boxes));
  const spot = layout.spots.get(at);
  holder.scrollLeft = spot.x - holder.clientWidth / 2 + BOX.width / 2;
  holder.scrollTop = top(spot) - holder.clientHeight / 2;
}

function drawNodeCard(at) {
  const n = node(at);
  const tensors = (names) => names.map((name, i) => [i ? ", " : null, tensorAt.has(name) ? el("button", { type: "button", class: "link", onclick: () => { showTensor(tensorAt.get(name), true); byId("tensors").scrollIntoView(); } }, name) : name]);
  byId("node-card").replaceChildren(el("h3", { title: n.name }, n.name), el("p", { class: "muted" }, `${n.op}, node ${at + 1} of ${nodes.names.length}`), list([
    ["becomes", el("span", { class: `badge ${n.isInt ? "int" : "float"}` }, n.kind)],
    n.why ? [n.isInt ? "remark" : "why float", n.why] : null,
    hasNoise ? ["noise", n.noise ? `${pct(n.noise)} of that at the worst output` : "adds none"] : null,
    n.planned !== null ? ["time", `${duration(n.planned)} as planned, ${duration(n.float)} in float, ${data.how}`] : null,
    n.macs ? ["multiply-adds", Math.round(n.macs).toLocaleString("en")] : null,
    n.makers.length ? ["reads from", nodeLinks(n.makers.map((m) => nodes.names[m]))] : null,
    nodes.outs[at].length ? ["makes", tensors(nodes.outs[at])] : null,
    readers[at].length ? ["read by", nodeLinks(readers[at].slice(0, 12).map((r) => nodes.names[r]))] : null,
  ]));
}

function showNode(at, move) {
  colour.chosen = at;
  for (const cell of document.querySelectorAll("#map .on")) cell.removeAttribute("class");
  const cell = document.querySelector(`#map [data-at="${at}"]`);
  if (cell) cell.setAttribute("class", "on");
  drawGraph(at);
  drawNodeCard(at);
  if (move) byId("graph-shell").scrollIntoView();
}

if (byId("graph-shell")) {
  byId("map").addEventListener("click", (event) => { if (event.target.dataset.at) showNode(Number(event.target.dataset.at)); });
  for (const radio of document.querySelectorAll('input[name="colour"]')) {
    radio.addEventListener("change", () => { colour.mode = radio.value; drawLegend(); drawMap(); drawGraph(colour.chosen); });
  }
  const search = byId("node-search");
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    const hits = wanted ? nodes.names.filter((name) => name.toLowerCase().includes(wanted)) : [];
    byId("node-names").replaceChildren(...hits.slice(0, 40).map((name) => el("option", { value: name })));
    const best = nodeAt.has(search.value) ? search.value : hits[0];
    if (best !== undefined) showNode(nodeAt.get(best));
  });
  document.addEventListener("click", (event) => { const button = event.target.closest("[data-node]"); if (button) showNode(nodeAt.get(button.dataset.node), true); });
  drawLegend();
  drawMap();
  const noisiest = nodes.rows.reduce((best, row, at) => ((row[6] || 0) > (nodes.rows[best][6] || 0) ? at : best), 0);
  showNode(noisiest);
  if (more) more.addEventListener("toggle", () => { if (more.open) drawGraph(colour.chosen); });
}
if (data.tensors.length) {
  const own = (t) => (t.q && typeof t.q[6] === "number" ? t.q[6] : 1e9);
  showTensor(data.tensors.reduce((best, t, at) => (own(t) < own(data.tensors[best]) ? at : best), 0));
  filterTable("tensor-table");
}
