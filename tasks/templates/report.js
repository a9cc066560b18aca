"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const MARKS = "0123456789abcdefghijklmnopqrstuvwxyz";
  const COLOURS = 8;
  const $ = (query, root = document) => root.querySelector(query);
  const $$ = (query, root = document) => [...root.querySelectorAll(query)];
  const colour = (place) => "c" + (place % COLOURS);
  const hue = (group) => "g" + (group % COLOURS);
  const shade = (label) => (Math.floor(label / COLOURS) % 2 ? hue : colour)(label);
  const dash = (place) => "d" + (Math.floor(place / COLOURS) % 4);
  const known = (v) => v !== null && v !== undefined;

  // Names come from a study, so they only ever become text.
  function node(tag, attributes = {}, ...children) {
    const made = ["svg", "g", "path", "line", "rect", "circle", "text"].includes(tag)
      ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  // Numbers as text

  const percent = (v) => (100 * v).toFixed(1) + " %";
  const plain = (v) => (v === 0 || Math.abs(v) >= 1e-3) && Math.abs(v) < 1e5 ? String(+v.toPrecision(4)) : v.toExponential(2);
  function bytes(v) {
    let unit = 0;
    const units = ["B", "kB", "MB", "GB", "TB"];
    while (v >= 999.5 && unit < 4) { v /= 1000; unit += 1; }
    return String(+v.toPrecision(3)) + " " + units[unit];
  }

  function ticks(low, high, wanted, whole) {
    const raw = (high - low) / Math.max(1, wanted);
    const power = 10 ** Math.floor(Math.log10(raw || 1));
    let step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999) || power;
    if (whole) step = Math.max(1, Math.round(step));
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(+(k * step).toPrecision(12));
    return found.length < 2 && high > low && !whole ? ticks(low, high, 2 * wanted) : found;
  }

  // Tips

  function tipOf(host) {
    const tip = node("div", { class: "tip", hidden: "" });
    host.append(tip);
    return {
      show(x, y, title, rows) {
        tip.replaceChildren(node("b", {}, title), ...rows.map(([place, name, value]) => node("div", {},
          node("span", { class: typeof place === "number" ? colour(place) : place || "bare" }, node("i", {}, name)), node("span", {}, value))));
        tip.hidden = false;
        const { offsetWidth: w, offsetHeight: h } = tip, room = host.clientWidth;
        const left = x + 16 + w <= room ? x + 16 : x - 16 - w;
        tip.style.transform = `translate(${Math.max(0, Math.min(left, room - w))}px, ${y - h / 2}px)`;
      },
      hide() { tip.hidden = true; },
    };
  }

  function whenSized(host, draw) {
    let width = 0;
    new ResizeObserver(() => {
      if (host.clientWidth && host.clientWidth !== width) { width = host.clientWidth; draw(); }
    }).observe(host);
    return draw;
  }

  function place(host, drawing) {
    for (const old of $$(":scope > svg, :scope > .empty", host)) old.remove();
    host.prepend(drawing);
  }

  function pointer(event, drawing) {
    const box = drawing.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  // Lines: series [{name, place, x, y, low, high}], y null where nothing was measured

  function lineChart(host, options) {
    const tip = tipOf(host);
    let shown = [], raised = null;

    function draw() {
      const { series, height, title } = { height: 300, ...options() };
      shown = series.filter((s) => s.x.length);
      if (!shown.length) { place(host, node("p", { class: "empty" }, "Nothing measured.")); return; }
      const frame = frameOf(host, shown, { ...options(), height });
      const drawing = node("svg", { height, role: "img", "aria-label": title, tabindex: "0" });
      axes(drawing, frame);
      for (const one of shown) drawing.append(...lines(one, frame, raised));
      if (frame.named) drawing.append(...endNames(shown, frame));
      const cursor = node("g");
      drawing.append(cursor);
      follow(drawing, cursor, frame);
      place(host, drawing);
    }

    function follow(drawing, cursor, frame) {
      const stops = [...new Set(shown.flatMap((s) => s.x))].sort((a, b) => a - b);
      let at = -1;
      function move(x) {
        const value = frame.valueX(x);
        at = nearest(stops, value);
        point(stops[at]);
      }
      function point(value) {
        const met = shown.map((s) => [s, last(s, value)]).filter(([, i]) => i >= 0).sort((a, b) => b[0].y[b[1]] - a[0].y[a[1]]);
        cursor.replaceChildren(node("line", { class: "cursor", x1: frame.x(value), x2: frame.x(value), y1: frame.top, y2: frame.bottom }),
          ...met.map(([s, i]) => node("circle", { class: "dot " + colour(s.place), cx: frame.x(s.x[i]), cy: frame.y(s.y[i]), r: 3.6 })));
        const spread = (s, i) => known(s.std?.[i]) ? " ± " + frame.formatStd(s.std[i]) : "";
        tip.show(frame.x(value), frame.top + 60, frame.titleX(value), met.slice(0, 14).map(([s, i]) => [s.place, s.name, frame.formatY(s.y[i]) + spread(s, i)]));
      }
      const leave = () => { cursor.replaceChildren(); tip.hide(); };
      drawing.addEventListener("pointermove", (event) => move(pointer(event, drawing)[0]));
      drawing.addEventListener("pointerdown", (event) => move(pointer(event, drawing)[0]));
      drawing.addEventListener("pointerleave", leave);
      drawing.addEventListener("blur", leave);
      drawing.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!step) return;
        event.preventDefault();
        at = Math.min(stops.length - 1, Math.max(0, at + step));
        point(stops[at]);
      });
    }

    // Where x is a budget, a series tells what it had reached by then; past its end it stays silent.
    function last(s, value) {
      if (options().budget) return s.x.findLastIndex((x) => x <= value * (1 + 1e-9));
      return s.x.indexOf(value);
    }

    return { draw: whenSized(host, draw), raise(place) { if (raised !== place) { raised = place; draw(); } } };
  }

  function nearest(stops, value) {
    let best = 0;
    stops.forEach((stop, i) => { if (Math.abs(stop - value) < Math.abs(stops[best] - value)) best = i; });
    return best;
  }

  function frameOf(host, series, options) {
    const width = host.clientWidth, { height } = options;
    const longest = Math.max(...series.map((s) => s.name.length));
    const named = options.names !== false && width > 460 && series.length <= 10 && longest <= 24;
    const xs = series.flatMap((s) => s.x), ys = series.flatMap((s) => [...s.y, ...(s.low || []), ...(s.high || [])]).filter(known);
    let [x0, x1] = [options.zero ? 0 : Math.min(...xs), Math.max(...xs)];
    let [y0, y1] = [Math.min(...ys), Math.max(...ys)];
    if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
    const room = (y1 - y0) * 0.05 || Math.abs(y1) * 0.05 || 0.05;
    y0 = options.share ? Math.max(0, y0 - room) : y0 - room;
    y1 = options.share ? Math.min(1, y1 + room) : y1 + room;
    if (y0 >= y1) y0 = y1 - 0.1;
    const left = 50, right = width - (named ? 14 + longest * 6.6 : 10), top = 10, bottom = height - (options.labelX ? 40 : 22);
    return {
      ...options, width, named, left, right, top, bottom, x0, x1, y0, y1,
      x: (v) => left + (right - left) * (v - x0) / (x1 - x0),
      y: (v) => bottom - (bottom - top) * (v - y0) / (y1 - y0),
      valueX: (x) => x0 + (x1 - x0) * (x - left) / (right - left),
      formatY: options.share ? percent : plain,
      formatStd: options.share ? (v) => (100 * v).toFixed(1) : plain,
    };
  }

  function axes(drawing, frame) {
    const { left, right, top, bottom } = frame;
    const tickY = ticks(frame.y0, frame.y1, (bottom - top) / 34);
    const digits = Math.max(0, ...tickY.map((v) => (String(+(100 * v).toFixed(2)).split(".")[1] || "").length));
    for (const v of tickY) {
      drawing.append(node("line", { class: "gridline", x1: left, x2: right, y1: frame.y(v), y2: frame.y(v) }),
        node("text", { x: left - 8, y: frame.y(v) + 4, "text-anchor": "end" }, frame.share ? (100 * v).toFixed(digits) + " %" : plain(v)));
    }
    drawing.append(node("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    for (const v of ticks(frame.x0, frame.x1, (right - left) / (frame.whole ? 44 : 78), frame.whole)) {
      drawing.append(node("line", { class: "axis", x1: frame.x(v), x2: frame.x(v), y1: bottom, y2: bottom + 4 }),
        node("text", { x: frame.x(v), y: bottom + 18, "text-anchor": "middle" }, frame.formatX(v)));
    }
    if (frame.labelX) drawing.append(node("text", { x: (left + right) / 2, y: bottom + 35, "text-anchor": "middle" }, frame.labelX));
  }

  function lines(one, frame, raised) {
    const thin = raised !== null && raised !== one.place ? " thin" : "";
    const path = (ys, back) => one.x.map((x, i) => [x, ys[i]])[back ? "reverse" : "slice"]().map(([x, y]) => `${frame.x(x).toFixed(1)} ${frame.y(y).toFixed(1)}`).join("L");
    const made = [];
    if (one.low && one.x.length > 1 && !one.loose) {
      made.push(node("path", { class: `band ${colour(one.place)}${thin}`, d: `M${path(one.high)}L${path(one.low, true)}Z` }));
    }
    if (!one.loose) made.push(node("path", { class: `curve ${colour(one.place)} ${one.dashed ? "d1" : dash(one.place)}${thin}`, d: "M" + path(one.y), "data-run": one.place }));
    const end = one.x.length - 1;
    if (frame.dots || end === 0) {
      one.x.forEach((x, i) => made.push(node("circle", { class: `dot ${colour(one.place)}${thin}`, cx: frame.x(x), cy: frame.y(one.y[i]), r: end === 0 ? 4 : 2.4 })));
    } else {
      made.push(node("circle", { class: `dot ${colour(one.place)}${thin}`, cx: frame.x(one.x[end]), cy: frame.y(one.y[end]), r: 3 }));
    }
    return made;
  }

  // The names of lines at their ends; those at the right edge are pushed apart where they would touch
  function endNames(series, frame) {
    const gap = 14, ends = series.map((s) => ({ s, x: frame.x(s.x[s.x.length - 1]), y: frame.y(s.y[s.y.length - 1]) }));
    const spots = ends.filter((spot) => spot.x > frame.right - 90).sort((a, b) => a.y - b.y);
    spots.forEach((spot, i) => { spot.x = frame.right; if (i) spot.y = Math.max(spot.y, spots[i - 1].y + gap); });
    let floor = frame.bottom + 4;
    for (const spot of spots.toReversed()) { spot.y = Math.min(spot.y, floor); floor = spot.y - gap; }
    return ends.map(({ s, x, y }) => node("text", { class: "own " + colour(s.place), x: x + 9, y: y + 4 }, s.name));
  }

  function measured(x, values, row) {
    const kept = x.map((_, i) => i).filter((i) => known(values.mean[i]));
    const mean = kept.map((i) => values.mean[i]), std = kept.map((i) => values.std?.[i] ?? null);
    const banded = std.some((v) => known(v) && v > 0);
    return {
      ...row, x: kept.map((i) => x[i]), y: mean, std,
      low: banded ? mean.map((m, k) => m - (std[k] ?? 0)) : null, high: banded ? mean.map((m, k) => m + (std[k] ?? 0)) : null,
    };
  }

  // Legends

  function legend(box, charts, changed) {
    const hidden = new Set(), buttons = $$("button[data-run]", box), all = $(".all", box);
    function update() {
      buttons.forEach((b) => b.setAttribute("aria-pressed", String(!hidden.has(+b.dataset.run))));
      all.hidden = !hidden.size;
      changed();
    }
    buttons.forEach((button) => {
      const run = +button.dataset.run;
      button.title = "Click: hide or show. Shift-click: show this one alone.";
      button.addEventListener("click", (event) => {
        if (event.shiftKey) buttons.forEach((b) => (+b.dataset.run === run ? hidden.delete(run) : hidden.add(+b.dataset.run)));
        else if (!hidden.delete(run)) hidden.add(run);
        update();
      });
      button.addEventListener("pointerenter", () => charts.forEach((chart) => chart.raise(hidden.has(run) ? null : run)));
      button.addEventListener("pointerleave", () => charts.forEach((chart) => chart.raise(null)));
    });
    all.addEventListener("click", () => { hidden.clear(); update(); });
    return hidden;
  }

  function curves(section, chapter) {
    const box = $(".legend", section);
    if (!box) return { hidden: new Set(), onChange() {} };
    const choice = $("select[data-for=metric]", section), charts = [];
    let redraw = () => charts.forEach((chart) => chart.draw());
    const hidden = legend(box, charts, () => redraw());
    const metric = () => chapter.curves.metrics.find((m) => m.key === choice.value);
    const series = (axis) => chapter.curves.runs.map((run, place) => ({ run, place }))
      .filter(({ run, place }) => !hidden.has(place) && run[axis] && run.values[choice.value])
      .map(({ run, place }) => measured(run[axis], run.values[choice.value], { name: run.name, place, dashed: run.pooled }));
    charts.push(lineChart($("[data-chart=rounds]", section), () => ({
      series: series("round"), share: metric().share, labelX: "rounds played", whole: true, formatX: String,
      titleX: (v) => `Round ${v}`, title: `${metric().label} against rounds`, names: false,
    })));
    charts.push(lineChart($("[data-chart=bytes]", section), () => ({
      series: series("bytes"), share: metric().share, labelX: "bytes exchanged", zero: true, formatX: bytes, budget: true,
      titleX: (v) => `With ${bytes(v)}`, title: `${metric().label} against traffic`,
    })));
    choice.addEventListener("change", () => redraw());
    return { hidden, onChange: (then) => { const before = redraw; redraw = () => { before(); then(); }; } };
  }

  // Cells: a path for each shade, so that any number of cells is a handful of elements

  const cellPath = (boxes) => boxes.map(([x, y, w, h]) => `M${x.toFixed(2)} ${y.toFixed(2)}h${w.toFixed(2)}v${h.toFixed(2)}h${(-w).toFixed(2)}z`).join("");

  function holdingsChart(section, chapter) {
    const host = $("[data-chart=holdings]", section);
    if (!host) return;
    const tip = tipOf(host), buttons = $$("[data-split]", section), held = chapter.holdings;
    let split = "train";

    function draw() {
      const counts = held[split], rows = counts.length, columns = counts[0].length;
      const longest = Math.max(...held.classes.map((c) => c.length));
      const left = Math.min(120, 14 + 6.6 * Math.min(16, longest)), width = host.clientWidth;
      const cell = Math.min(26, (width - left - 4) / columns), line = rows > 40 ? 8 : 19, top = 56;
      const height = top + rows * line + 38, most = Math.max(1, ...counts.flat());
      const drawing = node("svg", { height, role: "img", "aria-label": `Images of each class at each client, ${split}` });
      drawing.append(node("rect", { class: "ground", x: left, y: top, width: cell * columns, height: rows * line }));
      const gap = cell > 5 ? 1 : 0, shades = new Map();
      counts.forEach((own, r) => own.forEach((count, c) => {
        if (!count) return;
        const shade = Math.max(1, Math.round(12 * Math.sqrt(count / most)));
        if (!shades.has(shade)) shades.set(shade, []);
        shades.get(shade).push([left + c * cell, top + r * line, cell - gap, line - 1]);
      }));
      for (const [shade, boxes] of shades) drawing.append(node("path", { class: "heat", "fill-opacity": (0.1 + 0.9 * shade / 12).toFixed(3), d: cellPath(boxes) }));
      bars(drawing, counts, { left, cell, gap, top });
      key(drawing, left + cell * columns, height, most);
      labels(drawing, { left, cell, line, top, rows, columns });
      const spot = node("g");
      drawing.append(spot);
      drawing.addEventListener("pointermove", (event) => {
        const [x, y] = pointer(event, drawing), c = Math.floor((x - left) / cell), r = Math.floor((y - top) / line);
        if (c < 0 || c >= columns || y > top + rows * line) { spot.replaceChildren(); tip.hide(); return; }
        const group = held.groups ? `, group ${held.groups[c]}` : "", sum = counts.reduce((s, own) => s + own[c], 0);
        const onCell = r >= 0;
        spot.replaceChildren(node("rect", { class: "spot", x: left + c * cell, y: onCell ? top + r * line : top - 44, width: Math.max(2, cell - gap), height: onCell ? line - 1 : 44 + rows * line }));
        tip.show(left + (c + 0.5) * cell, y, `Client ${c}${group}`, onCell ? [[null, held.classes[r], String(counts[r][c])], [null, "in all", String(sum)]] : [[null, "images", String(sum)]]);
      });
      drawing.addEventListener("pointerleave", () => { spot.replaceChildren(); tip.hide(); });
      place(host, drawing);
    }

    function key(drawing, right, height, most) {
      const marks = [...new Set([0.05, 0.25, 0.5, 1].map((share) => Math.max(1, Math.round(share * most))))];
      if (right < 420) return;
      marks.forEach((count, i) => {
        const x = right - 52 * (marks.length - i), shade = Math.max(1, Math.round(12 * Math.sqrt(count / most)));
        drawing.append(node("rect", { class: "heat", "fill-opacity": (0.1 + 0.9 * shade / 12).toFixed(3), x: x, y: height - 16, width: 14, height: 12 }), node("text", { x: x + 19, y: height - 6 }, String(count)));
      });
    }

    function bars(drawing, counts, at) {
      const sums = counts[0].map((_, c) => counts.reduce((s, own) => s + own[c], 0)), most = Math.max(1, ...sums);
      drawing.append(node("path", { class: "heat", "fill-opacity": ".55", d: cellPath(sums.map((s, c) => [at.left + c * at.cell, at.top - 8 - 36 * s / most, Math.max(0.5, at.cell - at.gap), 36 * s / most])) }),
        node("text", { x: at.left - 8, y: at.top - 36, "text-anchor": "end" }, String(most)), node("text", { x: at.left - 8, y: at.top - 8, "text-anchor": "end" }, "0"));
    }

    function labels(drawing, at) {
      const every = Math.ceil(15 / at.line);
      held.classes.forEach((name, r) => {
        const short = name.length > 16 ? name.slice(0, 15) + "…" : name;
        if (r % every === 0) drawing.append(node("text", { x: at.left - 8, y: at.top + (r + 0.5) * at.line + 4, "text-anchor": "end" }, short));
      });
      const bottom = at.top + at.rows * at.line;
      for (const c of ticks(0, at.columns - 1, at.cell * at.columns / 60, true)) drawing.append(node("text", { x: at.left + (c + 0.5) * at.cell, y: bottom + 15, "text-anchor": "middle" }, String(c)));
      drawing.append(node("text", { x: at.left + at.cell * at.columns / 2, y: bottom + 32, "text-anchor": "middle" }, "client"));
      (held.groups || []).forEach((group, c, all) => {
        if (c && group !== all[c - 1]) drawing.append(node("line", { class: "divide", x1: at.left + c * at.cell - 0.5, x2: at.left + c * at.cell - 0.5, y1: at.top - 46, y2: bottom + 3 }));
      });
    }

    buttons.forEach((button) => button.addEventListener("click", () => {
      split = button.dataset.split;
      buttons.forEach((b) => b.setAttribute("aria-pressed", String(b === button)));
      draw();
    }));
    whenSized(host, draw);
  }

  function clustersChart(host, found, chosen) {
    const tip = tipOf(host), caption = $(`[data-recovered="${host.dataset.index}"]`, host.closest("section"));
    function draw() {
      const seed = found.seeds.find((s) => String(s.seed) === chosen()) || found.seeds[0];
      caption.textContent = `Seed ${seed.seed}.` + (known(seed.recovered) ? ` At the end ${percent(seed.recovered)} of the clients are in their true group.` : "");
      const rows = found.order.length, columns = found.rounds, width = host.clientWidth;
      const left = 34, top = 6, line = Math.max(2, Math.min(14, 300 / rows)), cell = Math.min(44, (width - left - 6) / columns);
      const bottom = top + rows * line, right = left + cell * columns;
      const drawing = node("svg", { height: bottom + 38, role: "img", "aria-label": `Cluster of every client by round, ${found.name}, seed ${seed.seed}` });
      drawing.append(node("rect", { class: "ground", x: left, y: top, width: cell * columns, height: rows * line }));
      const runs = new Map();
      seed.cells.forEach((marks, r) => {
        for (let c = 0, from = 0; c < columns; c = from) {
          while (from < columns && marks[from] === marks[c]) from += 1;
          const cluster = MARKS.indexOf(marks[c]);
          if (cluster < 0) continue;
          if (!runs.has(cluster)) runs.set(cluster, []);
          runs.get(cluster).push([left + c * cell, top + r * line, (from - c) * cell, line]);
        }
      });
      for (const [cluster, boxes] of runs) drawing.append(node("path", { class: "cells " + hue(cluster), d: cellPath(boxes) }));
      if (found.groups) strip(drawing, { left, right, top, line });
      for (const v of ticks(1, columns, cell * columns / 60, true)) drawing.append(node("text", { x: left + (v - 0.5) * cell, y: bottom + 15, "text-anchor": "middle" }, String(v)));
      drawing.append(node("text", { x: (left + right) / 2, y: bottom + 32, "text-anchor": "middle" }, "round"),
        node("text", { x: -(top + bottom) / 2, y: 11, "text-anchor": "middle", transform: "rotate(-90)" }, `${rows} client${rows === 1 ? "" : "s"}`));
      if (found.warmup > 0 && found.warmup < columns) warmup(drawing, left + found.warmup * cell, top, bottom);
      const spot = node("g");
      drawing.append(spot);
      drawing.addEventListener("pointermove", (event) => {
        const [x, y] = pointer(event, drawing), c = Math.floor((x - left) / cell), r = Math.floor((y - top) / line);
        if (c < 0 || c >= columns || r < 0 || r >= rows) { spot.replaceChildren(); tip.hide(); return; }
        const cluster = MARKS.indexOf(seed.cells[r][c]);
        spot.replaceChildren(node("rect", { class: "spot", x: left + c * cell, y: top + r * line, width: cell, height: line }));
        const facts = found.groups ? [[hue(found.groups[r]), "true group", String(found.groups[r])]] : [];
        facts.push(cluster < 0 ? [null, "took no part", ""] : [hue(cluster), "cluster", String(cluster)]);
        tip.show(left + (c + 0.5) * cell, top + (r + 0.5) * line, `Client ${found.order[r]}, round ${c + 1}`, facts);
      });
      drawing.addEventListener("pointerleave", () => { spot.replaceChildren(); tip.hide(); });
      place(host, drawing);
    }

    function strip(drawing, { left, right, top, line }) {
      found.groups.forEach((group, r, all) => {
        drawing.append(node("rect", { class: "cells " + hue(group), x: left - 12, y: top + r * line, width: 7, height: line + 0.3 }));
        if (r && group !== all[r - 1]) drawing.append(node("line", { class: "border", x1: left - 12, x2: right, y1: top + r * line, y2: top + r * line }));
      });
    }

    function warmup(drawing, x, top, bottom) {
      drawing.append(node("line", { class: "border thick", x1: x, x2: x, y1: top, y2: bottom }), node("line", { class: "divide", x1: x, x2: x, y1: top, y2: bottom + 5 }));
    }

    return whenSized(host, draw);
  }

  // Features: an element for each class and panel, its points as dots of a line that only has ends

  function mapChart(host, panel, labels) {
    return whenSized(host, () => {
      const size = Math.min(host.clientWidth, 360), room = 6, at = (v) => (room + v * (size - 2 * room)).toFixed(1);
      const drawing = node("svg", { height: size, role: "img", "aria-label": `Features of test images, ${panel.title}` });
      panel.points.forEach((points, k) => drawing.append(node("path", {
        class: "points " + shade(labels[k]), d: points.map(([x, y]) => `M${at(x)} ${at(y)}h0`).join("") })));
      place(host, drawing);
    });
  }

  // The loss on a plane: a path for each of a few shades of its logarithm, from the lowest loss of the chapter to its highest

  function surfaceChart(host, found, all) {
    const tip = tipOf(host), log = (v) => Math.log(Math.max(v, 1e-6)), told = all.flatMap((one) => one.values.flat()).map(log);
    const low = Math.min(...told), room = Math.max(...told) - low || 1, shades = 24;
    return whenSized(host, () => {
      const side = found.a.length, size = Math.min(host.clientWidth, 360), cell = size / side, boxes = new Map();
      const drawing = node("svg", { height: size, role: "img", "aria-label": `Loss around the final model of ${found.name}` });
      found.values.forEach((line, r) => line.forEach((value, c) => {
        const shade = Math.round(shades * (1 - (log(value) - low) / room));
        if (!boxes.has(shade)) boxes.set(shade, []);
        boxes.get(shade).push([c * cell, (side - 1 - r) * cell, cell + 0.2, cell + 0.2]);
      }));
      for (const [shade, own] of boxes) drawing.append(node("path", { class: "heat", "fill-opacity": (0.04 + 0.96 * shade / shades).toFixed(3), d: cellPath(own) }));
      const middle = size / 2;
      drawing.append(node("path", { class: "border", d: `M${middle - 5} ${middle}h10M${middle} ${middle - 5}v10` }));
      drawing.addEventListener("pointermove", (event) => {
        const [x, y] = pointer(event, drawing), c = Math.floor(x / cell), r = side - 1 - Math.floor(y / cell);
        if (c < 0 || c >= side || r < 0 || r >= side) { tip.hide(); return; }
        tip.show(x, y, `a ${plain(found.a[c])}, b ${plain(found.b[r])}`, [[null, "loss", plain(found.values[r][c])]]);
      });
      drawing.addEventListener("pointerleave", () => tip.hide());
      place(host, drawing);
    });
  }

  function sweepChart(host, found) {
    const series = found.series.map((one, place) => ({
      ...measured(one.points.map((point) => point.at), { mean: one.points.map((point) => point.stat.mean), std: one.points.map((point) => point.stat.std) },
        { name: one.name, place }), loose: !found.numeric }));
    lineChart(host, () => ({
      series, share: true, dots: true, whole: true, height: 260, labelX: found.setting, formatX: (v) => found.values[v] ?? "",
      titleX: (v) => `${found.setting} ${found.values[v]}`, title: `Final score by ${found.setting}`,
    }));
  }

  // Every client: dots stacked where they would hide each other

  function spreadChart(section, chapter, hidden) {
    const host = $("[data-chart=spread]", section), tip = tipOf(host);
    function draw() {
      const rows = chapter.spread.map((run, place) => ({ ...run, place })).filter((run) => run.clients.length && !hidden.has(run.place));
      if (!rows.length) { place(host, node("p", { class: "empty" }, "Nothing measured.")); return; }
      const width = host.clientWidth, wide = width > 620, longest = Math.max(...rows.map((run) => run.name.length));
      const left = wide ? Math.min(230, 18 + longest * 7) : 8, line = wide ? 58 : 72, radius = 3;
      const values = rows.flatMap((run) => run.clients.map((c) => c.accuracy)), room = (Math.max(...values) - Math.min(...values)) * 0.04 || 0.02;
      const low = Math.max(0, Math.min(...values) - room), high = Math.min(1, Math.max(...values) + room), right = width - 14;
      const x = (v) => left + (right - left) * (v - low) / (high - low || 1), height = rows.length * line + 44, bottom = height - 40;
      const drawing = node("svg", { height, role: "img", "aria-label": "Final accuracy of each client, run by run" });
      for (const v of ticks(low, high, (right - left) / 80)) drawing.append(node("line", { class: "gridline", x1: x(v), x2: x(v), y1: 4, y2: bottom }), node("text", { x: x(v), y: bottom + 17, "text-anchor": "middle" }, +(100 * v).toFixed(1) + " %"));
      drawing.append(node("text", { x: (left + right) / 2, y: bottom + 34, "text-anchor": "middle" }, "accuracy on the client's own test images"));
      const dots = [];
      rows.forEach((run, i) => {
        const middle = i * line + (wide ? line / 2 : line / 2 + 9);
        drawing.append(node("text", { class: "own " + colour(run.place), x: wide ? left - 12 : left, y: wide ? middle + 4 : middle - 24, "text-anchor": wide ? "end" : "start" }, run.name));
        drawing.append(...box(run, x, middle));
        for (const dot of swarm(run, x, middle, radius, line / 2 - 10)) { dots.push(dot); drawing.append(dot.mark); }
      });
      drawing.addEventListener("pointermove", (event) => point(pointer(event, drawing), dots, rows));
      drawing.addEventListener("pointerdown", (event) => point(pointer(event, drawing), dots, rows));
      drawing.addEventListener("pointerleave", () => { dots.forEach((d) => d.mark.setAttribute("class", d.mark.getAttribute("class").replace(" same", ""))); tip.hide(); });
      place(host, drawing);
    }

    function box(run, x, middle) {
      const sorted = run.clients.map((c) => c.accuracy).sort((a, b) => a - b);
      const quantile = (q) => { const p = q * (sorted.length - 1), k = Math.floor(p); return sorted[k] + (p - k) * ((sorted[k + 1] ?? sorted[k]) - sorted[k]); };
      const [a, m, b] = [0.25, 0.5, 0.75].map((q) => x(quantile(q)));
      return [node("rect", { class: "middle " + colour(run.place), x: a, y: middle - 17, width: Math.max(1, b - a), height: 34, rx: 3 }),
        node("line", { class: "median " + colour(run.place), x1: m, x2: m, y1: middle - 17, y2: middle + 17 })];
    }

    function swarm(run, x, middle, radius, room) {
      const columns = new Map();
      for (const client of run.clients) {
        const column = Math.round(x(client.accuracy) / (2 * radius));
        if (!columns.has(column)) columns.set(column, []);
        columns.get(column).push(client);
      }
      return [...columns.values()].flatMap((own) => own.map((client, k) => {
        const step = Math.min(2 * radius, 2 * room / Math.max(1, own.length - 1)), y = middle + (k - (own.length - 1) / 2) * step;
        const mark = node("circle", { class: "client " + colour(run.place), cx: x(client.accuracy).toFixed(1), cy: y.toFixed(1), r: radius });
        return { client: client.client, group: client.group, pooled: run.pooled, x: x(client.accuracy), y, mark };
      }));
    }

    function point([px, py], dots, rows) {
      let best = null, near = 18 ** 2;
      for (const dot of dots) { const d = (dot.x - px) ** 2 + (dot.y - py) ** 2; if (d < near) { near = d; best = dot; } }
      for (const dot of dots) dot.mark.setAttribute("class", dot.mark.getAttribute("class").replace(" same", "") + (best && dot.client === best.client && dot.pooled === best.pooled ? " same" : ""));
      if (!best) { tip.hide(); return; }
      const told = rows.filter((run) => run.pooled === best.pooled).map((run) => [run, run.clients.find((c) => c.client === best.client)]).filter(([, c]) => c);
      tip.show(best.x, best.y, `${best.pooled ? "Pool" : "Client"} ${best.client}` + (known(best.group) ? `, group ${best.group}` : ""), told.map(([run, c]) => [run.place, run.name, percent(c.accuracy)]));
    }

    return whenSized(host, draw);
  }

  function encoders() {
    const trained = data.encoders.filter((e) => e.curve).map((e, place) => ({ ...e, place }));
    const others = data.encoders.filter((e) => !e.curve).map((e, k) => ({ ...e, place: trained.length + k }));
    const box = $("#encoder-legend");
    if (!box) return;
    const charts = [], hidden = legend(box, charts, () => charts.forEach((chart) => chart.draw()));
    const series = (key, only) => trained.filter((e) => !hidden.has(e.place) && e.curve[key] && (only === undefined || e.place === only))
      .map((e) => measured(e.curve.epoch, { mean: e.curve[key] }, { name: e.name, place: e.place }));
    const epochs = trained.flatMap((e) => e.curve.epoch), ends = [Math.min(...epochs), Math.max(...epochs)];
    const level = (key) => others.filter((e) => !hidden.has(e.place) && known(e[key]))
      .map((e) => measured(ends, { mean: [e[key], e[key]] }, { name: e.name, place: e.place, dashed: true }));
    const common = { whole: true, formatX: String, titleX: (v) => `Epoch ${v}` };
    for (const [key, title] of [["knn_accuracy", "Nearest-neighbour accuracy by epoch"], ["linear_accuracy", "Linear-probe accuracy by epoch"]]) {
      charts.push(lineChart($(`[data-chart=${key}]`), () => ({ ...common, series: [...series(key), ...level(key)], share: true, dots: true, labelX: "epoch", title, height: 260 })));
    }
    for (const host of $$("[data-chart=loss]")) {
      const encoder = trained[+host.dataset.index];
      lineChart(host, () => ({ ...common, series: series("loss", encoder.place), title: `Loss of ${encoder.name} by epoch`, height: 150, names: false }));
    }
  }

  // Tables, theme

  function sortable(table) {
    const body = $("tbody", table), heads = $$("thead th", table);
    heads.forEach((head, column) => {
      const button = $("button", head);
      if (!button) return;
      button.addEventListener("click", () => {
        const text = head.classList.contains("name");
        const order = head.getAttribute("aria-sort") === (text ? "ascending" : "descending") ? (text ? "descending" : "ascending") : (text ? "ascending" : "descending");
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const value = (row) => row.children[column].dataset.value, sign = order === "ascending" ? 1 : -1;
        const rows = [...body.rows].sort((a, b) => {
          const [u, v] = [value(a), value(b)];
          if (u === "" || v === "") return (u === "") - (v === "");
          return sign * (text ? u.localeCompare(v, "en", { numeric: true }) : u - v);
        });
        body.append(...rows);
      });
    });
  }

  function theme() {
    const root = document.documentElement, stored = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
    if (stored) root.dataset.theme = stored;
    $("#theme").addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* a page opened from a file may not store */ }
    });
  }

  theme();
  $$("table.sortable").forEach(sortable);
  $$("section.chapter").forEach((section) => {
    const chapter = data.chapters[+section.dataset.chapter], shared = curves(section, chapter);
    shared.onChange(spreadChart(section, chapter, shared.hidden));
    holdingsChart(section, chapter);
    const seed = $("select[data-for=seed]", section);
    const drawn = $$("[data-chart=clusters]", section).map((host) => clustersChart(host, chapter.clusters[+host.dataset.index], () => seed && seed.value));
    $$("[data-chart=map]", section).forEach((host) => {
      const found = chapter.maps[+host.dataset.index];
      mapChart(host, found.panels[+host.dataset.panel], found.labels);
    });
    $$("[data-chart=surface]", section).forEach((host) => surfaceChart(host, chapter.surfaces[+host.dataset.index], chapter.surfaces));
    if (seed) seed.addEventListener("change", () => drawn.forEach((draw) => draw()));
  });
  $$("[data-chart=sweep]").forEach((host) => sweepChart(host, data.sweeps[+host.dataset.index]));
  encoders();
})();
