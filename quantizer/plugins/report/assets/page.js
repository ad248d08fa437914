"use strict";
/* Elements, theme, sorting, searching, copying. Text only ever enters by textContent. */
document.documentElement.classList.add("script");
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function num(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return { inf: "∞", "-inf": "−∞" }[value] || value;
  const text = Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(digits - 2) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−").replace("e+", "e");
}
const db = (value) => (value === "inf" ? "equal" : typeof value === "number" ? value.toFixed(1).replace("-", "−") + " dB" : "–");
const duration = (us) => (us === null || us === undefined ? "–" : us < 999.5 ? num(us, us < 10 ? 2 : 3) + " µs" : num(us / 1000, 3) + " ms");
function pct(share) {
  if (share === null || share === undefined) return "–";
  const value = 100 * share;
  return share === 0 ? "0 %" : value < 0.01 ? "< 0.01 %" : value.toFixed(value < 0.1 ? 2 : 1) + " %";
}
const list = (pairs) => el("dl", {}, pairs.filter((p) => p).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

/* Theme: that of the system until the button is used; nothing is stored. */
const themeButton = byId("theme");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (systemDark.matches ? "dark" : "light")) === "dark";
function showTheme() { themeButton.setAttribute("aria-pressed", String(isDark())); document.dispatchEvent(new Event("themechange")); }
themeButton.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; showTheme(); });
systemDark.addEventListener("change", showTheme);
themeButton.setAttribute("aria-pressed", String(isDark()));

/* Sorting: by the value of a cell where it has one, else by its words. */
function sortBy(header) {
  const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
  const numeric = header.classList.contains("n");
  const now = header.getAttribute("aria-sort");
  const up = now === "none" ? !numeric : now === "descending";
  for (const other of table.querySelectorAll("thead th[aria-sort]")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = (row) => {
    const cell = row.cells[column];
    return cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.textContent.trim().toLowerCase();
  };
  const rows = Array.from(body.rows, (row, at) => [key(row), at, row]);
  rows.sort((a, b) => {
    const order = typeof a[0] === "number" && typeof b[0] === "number" ? a[0] - b[0] || 0 : String(a[0]).localeCompare(String(b[0]), undefined, { numeric: true });
    return (up ? order : -order) || a[1] - b[1];
  });
  body.append(...rows.map((row) => row[2]));
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("thead th[aria-sort] button");
  if (button) sortBy(button.closest("th"));
});

/* Searching: every word has to be in the row. */
function filterTable(id) {
  const table = byId(id);
  const words = document.querySelector(`input[data-for="${id}"]`).value.toLowerCase().split(/\s+/).filter(Boolean);
  const choice = document.querySelector(`select[data-for="${id}"]`);
  const kind = choice ? choice.value : "";
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const full = row.dataset.tensor !== undefined ? data.tensors[row.dataset.tensor].n : "";
    const name = (row.cells[0].textContent + " " + full).toLowerCase();
    row.hidden = !words.every((word) => name.includes(word)) || (kind !== "" && !row.dataset.kind.split(" ").includes(kind));
    shown += row.hidden ? 0 : 1;
  }
  document.querySelector(`[data-count="${id}"]`).textContent = `${shown} of ${table.tBodies[0].rows.length} shown`;
}
for (const control of document.querySelectorAll("[data-for]")) {
  control.addEventListener("input", () => filterTable(control.dataset.for));
}

/* Copying: the clipboard where a page in a file may use it, else a selection. */
document.addEventListener("click", async (event) => {
  const button = event.target.closest(".do-copy");
  if (!button) return;
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code);
    document.execCommand("copy");
  }
  const before = button.firstChild.textContent;
  button.firstChild.textContent = "Copied";
  setTimeout(() => { button.firstChild.textContent = before; }, 1500);
});

/* Of a good model the sections on how it comes about are folded; what leads to one of them opens them. */
const more = byId("more");
function openFor(hash) {
  const target = byId(hash.slice(1));
  if (more && target && more.contains(target)) more.open = true;
}
document.addEventListener("click", (event) => { const link = event.target.closest('a[href^="#"]'); if (link) openFor(link.hash); });
openFor(location.hash);

/* The section in view is marked in the list of contents. */
const links = new Map(Array.from(document.querySelectorAll("nav a"), (a) => [a.hash.slice(1), a]));
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const a of links.values()) a.removeAttribute("aria-current");
    const link = links.get(entry.target.id);
    if (link) link.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-10% 0px -75% 0px" });
for (const part of document.querySelectorAll("main section")) watcher.observe(part);
