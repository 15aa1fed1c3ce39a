"use strict";
// Reading and zooming the pictures. Everything is there without this script; nothing is loaded.
const Report = (() => {
  const LEFT = 160, PLOT = 720, WIDTH = 900, CELL = 12, TOP = 22, CLOSEST = 4;
  let root, data, view, at;

  const all = (what, from = root) => Array.from(from.querySelectorAll(what));
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const middle = (step) => (step - data.first + 0.5) / data.steps * PLOT;
  const stepOf = (x) => clamp(Math.floor(x / PLOT * data.steps) + data.first, data.first, data.first + data.steps - 1);

  function start(main, fresh) {
    root = main;
    data = JSON.parse(main.querySelector("#data").textContent);
    if (!fresh || !view) { view = [0, PLOT]; at = null; }
    all("figure[data-picture]").forEach(listen);
    all("[data-zoom]").forEach((b) => b.addEventListener("click", () => zoom(b.dataset.zoom)));
    all("a[data-step]").forEach((a) => a.addEventListener("click", () => point(Number(a.dataset.step))));
    show();
    if (at !== null) point(at);
  }

  function listen(figure) {
    const svg = figure.querySelector("svg.picture");
    const place = (event) => {
      const box = svg.getBoundingClientRect(), unit = WIDTH / box.width;
      return [(event.clientX - box.left) * unit - LEFT, (event.clientY - box.top) * unit - TOP];
    };
    const inside = (x) => view[0] + clamp(x, 0, PLOT) / PLOT * (view[1] - view[0]);
    let from = null;
    svg.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (x >= 0 && x <= PLOT) point(stepOf(inside(x)), figure, Math.floor(y / CELL));
    });
    svg.addEventListener("pointerdown", (event) => { from = place(event)[0]; });
    svg.addEventListener("pointerup", (event) => {
      const to = place(event)[0];
      if (from !== null && Math.abs(to - from) > 6) look(inside(Math.min(from, to)), inside(Math.max(from, to)));
      from = null;
    });
    svg.addEventListener("dblclick", () => zoom("all"));
    svg.addEventListener("dragstart", (event) => event.preventDefault());
    figure.addEventListener("keydown", (event) => keys(event, figure));
    figure.addEventListener("blur", () => figure.querySelector(".readout").setAttribute("aria-live", "off"));
  }

  function keys(event, figure) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== figure) return;
    const stride = Math.max(1, Math.round((view[1] - view[0]) / PLOT * data.steps / 100));
    const now = at === null ? stepOf(view[0]) : at;
    const moves = { ArrowLeft: now - stride, ArrowRight: now + stride, Home: data.first, End: data.first + data.steps - 1 };
    const zooms = { "+": "in", "=": "in", "-": "out", "0": "all", Escape: "all" };
    if (event.key in moves) {
      figure.querySelector(".readout").setAttribute("aria-live", "polite");
      point(clamp(moves[event.key], data.first, data.first + data.steps - 1), figure);
    } else if (event.key in zooms) zoom(zooms[event.key]);
    else return;
    event.preventDefault();
  }

  function zoom(how) {
    if (how === "all") return look(0, PLOT);
    const centre = at === null ? (view[0] + view[1]) / 2 : clamp(middle(at), view[0], view[1]);
    const factor = how === "in" ? 0.5 : 2;
    look(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor);
  }

  function look(low, high) {
    const least = Math.min(PLOT, CLOSEST / data.steps * PLOT);
    if (high - low < least) { const c = (low + high) / 2; low = c - least / 2; high = c + least / 2; }
    const width = Math.min(high - low, PLOT);
    low = clamp(low, 0, PLOT - width);
    view = [low, low + width];
    show();
  }

  function show() {
    const width = view[1] - view[0];
    for (const plot of all(".plot")) {
      plot.setAttribute("viewBox", `${view[0]} 0 ${width} ${plot.getAttribute("height")}`);
      for (const dot of all("circle", plot)) {
        const x = dot.getAttribute("cx");
        dot.setAttribute("transform", `translate(${x} 0) scale(${width / PLOT} 1) translate(${-x} 0)`);
      }
    }
    const steps = ticks(stepOf(view[0]), stepOf(view[1] - 1e-9));
    for (const axis of all(".xticks")) {
      const y = Number(axis.parentNode.querySelector("line.axis").getAttribute("y1"));
      axis.replaceChildren(...steps.flatMap((step) => tick(LEFT + (middle(step) - view[0]) / width * PLOT, y, step)));
    }
    root.dataset.window = `${stepOf(view[0])}-${stepOf(view[1] - 1e-9)}`;
  }

  function ticks(first, last) {
    const rough = Math.max((last - first) / 8, 1), power = 10 ** Math.floor(Math.log10(rough));
    const stride = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
    const found = [];
    for (let step = Math.ceil(first / stride) * stride; step <= last; step += stride) found.push(step);
    return found;
  }

  function tick(x, y, step) {
    const make = (name, set) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const key in set) made.setAttribute(key, set[key]);
      return made;
    };
    const text = make("text", { class: "tick-label", x, y: y + 16, "text-anchor": "middle" });
    text.textContent = step;
    return [make("line", { class: "tick", x1: x, x2: x, y1: y, y2: y + 4 }), text];
  }

  function point(step, from, row) {
    at = step;
    const x = middle(step);
    for (const line of all(".cursor")) {
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
      line.setAttribute("visibility", "visible");
    }
    for (const figure of all("figure[data-picture]")) {
      const picture = data.pictures[figure.dataset.picture];
      if (!picture) continue;
      figure.querySelector(".readout").textContent =
        picture.kind === "curve" ? curve(picture, step) : map(picture, step, figure === from ? row : undefined);
    }
  }

  function curve(picture, step) {
    const said = picture.lines.map((line) => {
      let low = 0, high = line.steps.length - 1;
      while (low < high) { const mid = (low + high + 1) >> 1; if (line.steps[mid] <= step) low = mid; else high = mid - 1; }
      if (low + 1 < line.steps.length && line.steps[low + 1] - step < step - line.steps[low]) low += 1;
      return line.steps.length ? `${line.name} ${line.values[low]} (step ${line.steps[low]})` : `${line.name} not measured`;
    });
    return `step ${step}: ${said.join(", ")}`;
  }

  function map(picture, step, row) {
    const column = clamp(Math.floor((step - data.first) * picture.columns / data.steps), 0, picture.columns - 1);
    const events = picture.events.filter((e) => e.step === step && (row === undefined || e.row === row)).slice(0, 3);
    const told = events.map((e) => `; ${e.text}`).join("");
    if (row === undefined || row < 0 || row >= picture.rows.length) return `step ${step}${told}`;
    const value = picture.cells[row][column];
    return `step ${step}: ${picture.rows[row]} ${value === null ? "not measured" : value}${told}`;
  }

  return { start };
})();
if (document.querySelector("#report #data")) Report.start(document.getElementById("report"));
