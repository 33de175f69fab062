"use strict";
// Draws the page from the JSON that it carries. No library, no request: it works from a file.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { unit, regions, jobs, episodes } = data;
  const two = episodes.length === 2;
  const row = new Map(jobs.id.map((id, i) => [id, i])); // job id -> index into the job arrays
  const endS = Math.max(...episodes.map((e) => e.end_s)) || 1;
  const view = { from: 0, to: endS };
  const shown = episodes.map(() => true);
  let selected = null; // job id
  const charts = [];

  // ---- small pieces

  function el(tag, attributes = {}, ...children) {
    const svg = ["svg", "path", "circle", "line", "text", "g", "marker", "defs"].includes(tag);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (job) => data.colours[job % data.colours.length];
  /** Black or white, whichever contrasts more (WCAG). */
  function inkOn(hex) {
    const linear = [1, 3, 5].map((n) => (parseInt(hex.slice(n, n + 2), 16) / 255) ** 2.2);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179 ? "#000" : "#fff";
  }
  const regionColour = (r) => data.colours[r % data.colours.length];
  const episodeColour = (e) => css(e === 0 ? "--a" : "--b");

  function number(value, digits = 4) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e7 || size < 1e-4) return value.toExponential(digits - 1);
    const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    return value.toLocaleString("en", { maximumFractionDigits: Math.min(decimals, 12), useGrouping: size >= 1e4 });
  }
  const time = (s) => (s === null ? "–" : `${number(s / unit.seconds)} ${unit.name}`);
  const percent = (share) => `${number(100 * share, 3)} %`;
  const dollars = (usd) => (usd < 0 ? `-$${number(-usd)}` : `$${number(usd)}`);

  /** Index of the step in force at time t: the last start not after it. */
  function stepAt(steps, t) {
    let low = 0;
    let high = steps.t.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps.t[middle] <= t) low = middle;
      else high = middle;
    }
    return low;
  }
  const valueAt = (steps, t) => steps.v[stepAt(steps, t)];

  function say(text) { document.getElementById("said").textContent = text; }

  const tip = document.getElementById("tip");
  function showTip(hit, x, y) {
    if (!hit) { tip.hidden = true; return; }
    const list = el("dl");
    for (const [label, value] of hit.lines) list.append(el("dt", {}, label), el("dd", {}, value));
    tip.replaceChildren(el("b", {}, hit.title), list);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
    const top = y + 14 + box.height > innerHeight ? y - 14 - box.height : y + 14;
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - box.width - 4))}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  }
  const spoken = (hit) => `${hit.title}. ${hit.lines.map(([label, value]) => `${label} ${value}`).join(", ")}`;

  // ---- charts over time: one axis for all

  const FONT = "12px system-ui, 'DejaVu Sans', sans-serif";
  /** Room for the longest name of a region or link, so that all wide charts share their axis. */
  const nameWidth = (() => {
    const pen = el("canvas").getContext("2d");
    pen.font = FONT;
    const names = [...regions.map((region) => `${region.name} (${region.gpus})`),
      ...episodes.flatMap((episode) => episode.links.map((link) => `${regions[link.from].name} → ${regions[link.to].name}`))];
    return Math.min(220, Math.max(84, ...names.map((name) => Math.ceil(pen.measureText(name).width) + 10)));
  })();

  /** A canvas with the shared axis of time. `spec`: height(), draw(pen), find(t, y), move(spot, key). */
  class Chart {
    constructor(parent, spec) {
      this.spec = spec;
      this.spot = null; // where the keyboard is
      this.width = 0; // of the canvas; kept, because asking for it lays the page out anew
      this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": `${spec.label}. ${spec.keys}` });
      this.cursor = el("div", { class: "cursor", hidden: true });
      this.box = el("div", { class: "chart" }, el("p", {}, el("strong", {}, spec.label), spec.more ? ` ${spec.more}` : ""), this.canvas, this.cursor);
      parent.append(this.box);
      this.canvas.addEventListener("pointermove", (event) => this.point(event));
      this.canvas.addEventListener("pointerleave", () => { showTip(null); setCursor(null); });
      this.canvas.addEventListener("click", (event) => {
        this.point(event);
        const hit = this.hitAt(event.offsetX, event.offsetY);
        if (hit && hit.job !== undefined) select(hit.job);
      });
      this.canvas.addEventListener("keydown", (event) => this.key(event));
      this.canvas.addEventListener("blur", () => { this.spot = null; showTip(null); setCursor(null); });
      this.canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        zoom(event.deltaY < 0 ? 0.8 : 1.25, this.timeAt(event.offsetX));
      }, { passive: false });
      charts.push(this);
    }
    get isNarrow() { return this.width < 600; }
    get left() {
      if (this.spec.left) return this.spec.left;
      return this.isNarrow ? 92 : nameWidth;
    }
    get plotWidth() { return Math.max(10, this.width - this.left - 10); }
    x(t) { return this.left + ((t - view.from) / (view.to - view.from)) * this.plotWidth; }
    timeAt(x) { return view.from + ((x - this.left) / this.plotWidth) * (view.to - view.from); }
    hitAt(x, y) {
      if (x < this.left - 1 || x > this.left + this.plotWidth + 1) return null;
      return this.spec.find(this.timeAt(x), y, this);
    }
    point(event) {
      this.spot = null;
      setCursor(this.timeAt(event.offsetX));
      showTip(this.hitAt(event.offsetX, event.offsetY), event.clientX, event.clientY);
    }
    key(event) {
      if (event.key === "+" || event.key === "-") { zoom(event.key === "+" ? 0.5 : 2); return; }
      if (event.key === "Escape") { this.spot = null; showTip(null); setCursor(null); select(null); return; }
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        if (this.spot && this.spot.hit && this.spot.hit.job !== undefined) select(this.spot.hit.job);
        return;
      }
      if (!event.key.startsWith("Arrow") && event.key !== "Home" && event.key !== "End") return;
      event.preventDefault();
      const next = this.spec.move(this.spot, event.key, this);
      if (!next) return;
      this.spot = next;
      next.hit = this.spec.find(next.t, next.y, this);
      setCursor(next.t);
      if (!next.hit) return;
      const box = this.canvas.getBoundingClientRect();
      showTip(next.hit, box.left + this.x(next.t), box.top + next.y);
      say(spoken(next.hit));
    }
    draw() {
      const { width } = this;
      if (width === 0) return; // in a closed panel
      const height = this.spec.height(this);
      const scale = devicePixelRatio || 1;
      this.canvas.style.height = `${height + 20}px`;
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round((height + 20) * scale);
      const pen = this.canvas.getContext("2d");
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.font = FONT;
      this.axis(pen, height);
      pen.save();
      this.spec.draw(pen, this, height);
      pen.restore();
    }
    axis(pen, height) {
      const span = (view.to - view.from) / unit.seconds;
      const most = Math.max(2, Math.floor(this.plotWidth / 80));
      const raw = span / most;
      const power = 10 ** Math.floor(Math.log10(raw));
      const step = power * [1, 2, 5, 10].find((n) => n * power >= raw);
      pen.fillStyle = css("--soft");
      pen.strokeStyle = css("--line");
      pen.textAlign = "center";
      for (let n = Math.ceil(view.from / unit.seconds / step); n * step <= view.to / unit.seconds * (1 + 1e-12); n += 1) {
        const x = this.x(n * step * unit.seconds);
        pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, height + 3); pen.stroke();
        const last = (n + 1) * step > view.to / unit.seconds;
        const text = `${number(n * step, 6)}${last ? ` ${unit.name}` : ""}`;
        const half = pen.measureText(text).width / 2;
        pen.fillText(text, Math.min(x, this.left + this.plotWidth + 9 - half), height + 15);
      }
    }
    clip(pen, height) {
      pen.beginPath(); pen.rect(this.left, 0, this.plotWidth, height); pen.clip();
    }
    name(pen, text, y) {
      pen.fillStyle = css("--ink");
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      const room = this.left - 8;
      let label = text;
      while (label.length > 2 && pen.measureText(label).width > room) label = `${label.slice(0, -2)}…`;
      pen.fillText(label, this.left - 6, y);
      pen.textBaseline = "alphabetic";
    }
  }

  function setCursor(t) {
    for (const chart of charts) {
      const inside = t !== null && t >= view.from && t <= view.to && chart.width > 0;
      chart.cursor.hidden = !inside;
      if (!inside) continue;
      chart.cursor.style.left = `${chart.x(t)}px`;
      chart.cursor.style.top = `${chart.canvas.offsetTop}px`;
      chart.cursor.style.height = `${chart.canvas.clientHeight - 20}px`;
    }
  }

  function drawAll() {
    for (const chart of charts) chart.box.hidden = chart.spec.episode !== undefined && !shown[chart.spec.episode];
    for (const chart of charts) chart.width = chart.canvas.clientWidth;
    for (const chart of charts) chart.draw();
  }

  function zoom(factor, around = (view.from + view.to) / 2) {
    const span = Math.min(endS, Math.max(endS / 1e5, (view.to - view.from) * factor));
    const share = (around - view.from) / (view.to - view.from);
    view.from = Math.max(0, Math.min(around - share * span, endS - span));
    view.to = view.from + span;
    drawAll();
  }
  function pan(share) {
    const span = view.to - view.from;
    view.from = Math.max(0, Math.min(view.from + share * span, endS - span));
    view.to = view.from + span;
    drawAll();
  }

  // ---- what is known of a job, with units

  function whereOf(e, i) {
    const own = episodes[e].jobs;
    return own.path[i].map((r, n) => `${regions[r].name} ×${own.alloc[i][n]}`).join(" → ") || "not started";
  }
  function jobLines(e, job) {
    const i = row.get(job);
    const own = episodes[e].jobs;
    const start = own.start_s[i];
    const lines = [["model", jobs.model[i]], ["arrival", time(jobs.arrival_s[i])]];
    if (start === null) return [...lines, ["state", "not started"]];
    const finish = own.finish_s[i];
    return [
      ...lines,
      ["start", time(start)],
      ["finish", time(finish)],
      ["waited", time(start - jobs.arrival_s[i])],
      ["ran (Eq. 2)", time(finish - start)],
      ["JCT (Eq. 3)", time(finish - jobs.arrival_s[i])],
      ["GPUs", `${own.gpus[i]} of K* = ${jobs.k_star[i]}`],
      ["path", whereOf(e, i)],
      ["iteration (Eq. 1)", `${number(own.iteration_s[i])} s`],
      ["reserved per hop", `${number(own.gbps[i])} Gbit/s`],
      ["energy", `${number(own.energy_kwh[i])} kWh`],
      ["cost (Eq. 4)", dollars(own.cost_usd[i])],
    ];
  }
  const jobTitle = (job) => `Job ${job}: ${jobs.name[row.get(job)]}`;
  const policyTitle = (e) => (two ? ` (${episodes[e].policy})` : "");

  // ---- the Gantt chart: one lane per region, height = GPUs

  function gantt(parent, e) {
    const episode = episodes[e];
    const total = regions.reduce((sum, region) => sum + region.gpus, 0);
    const goal = Math.min(regions.length, 12) * 38 + Math.max(0, regions.length - 12) * 18;
    const heights = regions.map((region) => Math.max(18, (region.gpus / total) * goal));
    const tops = [];
    let bottom = 2;
    for (const height of heights) { tops.push(bottom); bottom += height + 5; }
    const regionAt = (y) => tops.findIndex((top, r) => y >= top && y < top + heights[r]);
    const bars = episode.lanes;
    const byRegion = regions.map(() => []);
    if (bars) bars.job.forEach((_, n) => byRegion[bars.region[n]].push(n));
    const boxOf = (n) => {
      const r = bars.region[n];
      return [tops[r] + (bars.first[n] / regions[r].gpus) * heights[r], (bars.gpus[n] / regions[r].gpus) * heights[r]];
    };
    const span = (n) => { const i = row.get(bars.job[n]); return [episode.jobs.start_s[i], episode.jobs.finish_s[i]]; };
    const inOrder = bars ? bars.job.map((_, n) => n).sort((m, n) => span(m)[0] - span(n)[0]) : [];

    function find(t, y) {
      const r = regionAt(y);
      if (r < 0) return null;
      if (bars) {
        for (const n of byRegion[r]) {
          const [top, height] = boxOf(n);
          const [start, finish] = span(n);
          if (t < start || t >= finish || y < top || y >= top + Math.max(height, 2)) continue;
          return { title: jobTitle(bars.job[n]) + policyTitle(e), lines: jobLines(e, bars.job[n]), job: bars.job[n] };
        }
      }
      const busy = valueAt(episode.busy[r], t);
      return {
        title: regions[r].name + policyTitle(e),
        lines: [
          ["time", time(t)],
          [episode.busy[r].mean ? "busy (mean)" : "busy", `${number(busy)} of ${regions[r].gpus} GPUs`],
          ["price", `${number(valueAt(data.prices[r], t))} $/kWh`],
          ["power", `${number(busy * regions[r].kw_per_gpu)} kW`],
        ],
      };
    }
    function move(spot, key, chart) {
      if (!bars) return along(spot, key, chart, tops.map((top, r) => top + heights[r] / 2));
      if (inOrder.length === 0) return null;
      let place = spot ? spot.place : -1;
      if (key === "Home") place = 0;
      else if (key === "End") place = inOrder.length - 1;
      else if (key === "ArrowLeft" || key === "ArrowUp") place = Math.max(0, place - 1);
      else place = Math.min(inOrder.length - 1, place + 1);
      const n = inOrder[place];
      const [top, height] = boxOf(n);
      const [start, finish] = span(n);
      return { place, t: (start + finish) / 2, y: top + height / 2 };
    }
    function draw(pen, chart) {
      regions.forEach((region, r) => {
        chart.name(pen, chart.isNarrow ? region.name : `${region.name} (${region.gpus})`, tops[r] + heights[r] / 2);
        pen.fillStyle = css("--free");
        pen.fillRect(chart.left, tops[r], chart.plotWidth, heights[r]);
      });
      chart.clip(pen, bottom);
      if (!bars) {
        pen.fillStyle = css("--a");
        regions.forEach((region, r) => {
          area(pen, chart, episode.busy[r], (v) => tops[r] + heights[r] * (1 - v / region.gpus), tops[r] + heights[r]);
        });
        return;
      }
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      bars.job.forEach((job, n) => {
        const [start, finish] = span(n);
        if (finish < view.from || start > view.to) return;
        const [top, height] = boxOf(n);
        const x = chart.x(start);
        const width = Math.max(chart.x(finish) - x, 1);
        pen.globalAlpha = selected === null || selected === job ? 1 : 0.25;
        pen.fillStyle = colour(job);
        pen.fillRect(x, top, width, height);
        if (width > 3 && height > 3) {
          pen.strokeStyle = css("--paper");
          pen.strokeRect(x + 0.5, top + 0.5, width - 1, height - 1);
        }
        if (height < 14 || width < 14) return;
        const from = Math.max(x, chart.left) + 4;
        const room = x + width - from - 3;
        const text = [`${job} ${jobs.name[row.get(job)]}`, `${job}`].find((label) => pen.measureText(label).width <= room);
        pen.fillStyle = inkOn(colour(job));
        if (text) pen.fillText(text, from, top + height / 2);
      });
    }
    const chart = new Chart(parent, {
      label: `${episode.policy}`,
      more: bars ? "" : "Too many jobs to draw each: mean GPUs held, by region.",
      keys: bars ? "Arrow keys go from job to job, Enter selects." : "Arrow keys move along time and regions.",
      episode: e, height: () => bottom, draw, find, move,
    });
    chart.canvas.id = `gantt-${e}`;
    // Where a job's largest bar is, for whoever drives the page.
    chart.canvas.where = (job) => {
      const mine = inOrder.filter((n) => bars.job[n] === job).sort((m, n) => boxOf(n)[1] - boxOf(m)[1]);
      if (mine.length === 0) return null;
      const [top, height] = boxOf(mine[0]);
      const [start, finish] = span(mine[0]);
      return [chart.x((start + finish) / 2), top + height / 2];
    };
  }

  /** The keyboard on a chart that is continuous in time: left and right in time, up and down in rows. */
  function along(spot, key, chart, ys) {
    const step = (view.to - view.from) / 60;
    const line = spot ? spot.line : 0;
    const t = spot ? spot.t : view.from;
    const next = { line, t };
    if (key === "ArrowLeft") next.t = Math.max(view.from, t - step);
    if (key === "ArrowRight") next.t = spot ? Math.min(view.to - step * 1e-6, t + step) : t;
    if (key === "Home") next.t = view.from;
    if (key === "End") next.t = view.to - step * 1e-6;
    if (key === "ArrowUp") next.line = Math.max(0, line - 1);
    if (key === "ArrowDown") next.line = spot ? Math.min(ys.length - 1, line + 1) : line;
    next.y = ys[next.line];
    return ys.length ? next : null;
  }

  /** Calls back with each step in view: start, end, value. */
  function eachStep(steps, end, visit) {
    for (let n = stepAt(steps, view.from); n < steps.t.length && steps.t[n] <= view.to; n += 1) {
      visit(Math.max(steps.t[n], view.from), Math.min(n + 1 < steps.t.length ? steps.t[n + 1] : end, view.to), steps.v[n]);
    }
  }
  function area(pen, chart, steps, y, base) {
    eachStep(steps, endS, (from, to, v) => {
      if (v !== 0) pen.fillRect(chart.x(from), y(v), Math.max(chart.x(to) - chart.x(from), 0.7), base - y(v));
    });
  }

  // ---- each job's waiting and running

  const MOST_ROWS = 400;
  function waiting(parent, e) {
    const episode = episodes[e];
    const n = jobs.id.length;
    if (data.aggregated || n > MOST_ROWS) {
      if (e === 0) parent.append(el("p", { class: "note" }, `Not drawn: ${data.n_jobs} jobs. The queue below and the table show who waits.`));
      return;
    }
    const pitch = n <= 30 ? 17 : n <= 100 ? 9 : 3;
    const rowAt = (y) => Math.min(n - 1, Math.max(0, Math.floor(y / pitch)));
    const chart = new Chart(parent, {
      label: `${episode.policy}`,
      more: "pale: waits, full: runs",
      keys: "Arrow keys move along jobs and time, Enter selects.",
      episode: e,
      height: () => n * pitch + 2,
      draw: (pen, chart, height) => {
        if (pitch > 10) jobs.id.forEach((id, i) => chart.name(pen, `${id} ${jobs.name[i]}`, i * pitch + pitch / 2));
        chart.clip(pen, height);
        jobs.id.forEach((id, i) => {
          const start = episode.jobs.start_s[i];
          const until = start === null ? episode.end_s : start;
          const strength = selected === null || selected === id ? 1 : 0.25;
          pen.fillStyle = colour(id);
          pen.globalAlpha = 0.35 * strength;
          pen.fillRect(chart.x(jobs.arrival_s[i]), i * pitch + pitch * 0.3, chart.x(until) - chart.x(jobs.arrival_s[i]), pitch * 0.4);
          if (start === null) return;
          pen.globalAlpha = strength;
          pen.fillRect(chart.x(start), i * pitch + 1, Math.max(chart.x(episode.jobs.finish_s[i]) - chart.x(start), 1), pitch - 2);
        });
      },
      find: (t, y) => {
        const job = jobs.id[rowAt(y)];
        return { title: jobTitle(job) + policyTitle(e), lines: [["time", time(t)], ...jobLines(e, job)], job };
      },
      move: (spot, key, chart) => along(spot, key, chart, jobs.id.map((_, i) => (i + 0.5) * pitch)),
    });
    chart.canvas.id = `jobs-${e}`;
  }

  // ---- links: a row each, colour = reserved share

  const RAMP = [[68, 84, 150], [38, 130, 142], [53, 183, 121], [180, 200, 50], [253, 200, 37]];
  function ramp(share) {
    const place = Math.min(1, Math.max(0, share)) * (RAMP.length - 1);
    const n = Math.min(RAMP.length - 2, Math.floor(place));
    const mix = RAMP[n].map((c, i) => Math.round(c + (RAMP[n + 1][i] - c) * (place - n)));
    return `rgb(${mix.join(",")})`;
  }
  function links(parent, e) {
    const episode = episodes[e];
    if (episode.links.length === 0) {
      parent.append(el("p", { class: "chart" }, el("strong", {}, episode.policy), ": no link is used: every job stays inside one region."));
      return;
    }
    // Two lines of name where there is no room for one.
    const pitchOf = (chart) => (chart.isNarrow ? 30 : 16);
    const nameOf = (link) => `${regions[link.from].name} → ${regions[link.to].name}`;
    const on = (link, t) => (data.aggregated ? [] : jobs.id.filter((id, i) => {
      const { start_s: start, finish_s: finish, path } = episode.jobs;
      if (start[i] === null || t < start[i] || t >= finish[i]) return false;
      return path[i].some((r, n) => r === link.from && path[i][n + 1] === link.to);
    }));
    const chart = new Chart(parent, {
      label: `${episode.policy}`,
      more: episode.links_left_out ? `the busiest ${episode.links.length}; ${episode.links_left_out} more are used less` : "",
      keys: "Arrow keys move along time and links.",
      episode: e,
      height: (chart) => episode.links.length * pitchOf(chart),
      draw: (pen, chart, height) => {
        const pitch = pitchOf(chart);
        episode.links.forEach((link, n) => {
          if (!chart.isNarrow) { chart.name(pen, nameOf(link), (n + 0.5) * pitch); return; }
          chart.name(pen, regions[link.from].name, n * pitch + 8);
          chart.name(pen, `→ ${regions[link.to].name}`, n * pitch + 21);
        });
        chart.clip(pen, height);
        episode.links.forEach((link, n) => {
          pen.fillStyle = css("--free");
          pen.fillRect(chart.left, n * pitch + 1, chart.plotWidth, pitch - 2);
          eachStep(link.use, endS, (from, to, v) => {
            if (v <= 0) return;
            pen.fillStyle = ramp(v);
            pen.fillRect(chart.x(from), n * pitch + 1, Math.max(chart.x(to) - chart.x(from), 0.7), pitch - 2);
          });
        });
      },
      find: (t, y, chart) => {
        const link = episode.links[Math.floor(y / pitchOf(chart))];
        if (!link) return null;
        const use = valueAt(link.use, t);
        const lines = [
          ["time", time(t)],
          [link.use.mean ? "reserved (mean)" : "reserved", `${percent(use)}: ${number(use * link.gbps)} of ${number(link.gbps)} Gbit/s`],
          ["latency", `${number(link.latency_ms)} ms`],
          ["mean over the episode", percent(link.mean)],
        ];
        const jobsOn = on(link, t);
        if (jobsOn.length) lines.push(["jobs", jobsOn.map((id) => `${id} ${jobs.name[row.get(id)]}`).join(", ")]);
        return { title: nameOf(link) + policyTitle(e), lines };
      },
      move: (spot, key, chart) => along(spot, key, chart, episode.links.map((_, n) => (n + 0.5) * pitchOf(chart))),
    });
    chart.canvas.id = `links-${e}`;
  }

  // ---- curves over time

  function curves(parent, id, label, unitName, lines) {
    const inUse = () => lines.filter((line) => line.episode === undefined || shown[line.episode]);
    const height = 130;
    let low = Math.min(0, ...lines.flatMap((line) => line.steps.low));
    let high = Math.max(0, ...lines.flatMap((line) => line.steps.high));
    if (high === low) high = low + 1;
    const y = (v) => 6 + (1 - (v - low) / (high - low)) * (height - 10);
    const chart = new Chart(parent, {
      label, more: unitName ? `(${unitName})` : "", left: 62,
      keys: "Left and right arrow keys move along time.",
      height: () => height,
      draw: (pen, chart) => {
        for (const v of [low, (low + high) / 2, high]) {
          pen.strokeStyle = css("--line");
          pen.beginPath(); pen.moveTo(chart.left, y(v)); pen.lineTo(chart.left + chart.plotWidth, y(v)); pen.stroke();
          pen.fillStyle = css("--soft");
          pen.textAlign = "right";
          pen.fillText(number(v, 3), chart.left - 6, y(v) + 4);
        }
        chart.clip(pen, height);
        for (const line of inUse()) {
          pen.strokeStyle = line.colour();
          pen.lineWidth = 1.8;
          pen.setLineDash(line.dash || []);
          pen.beginPath();
          if (line.steps.slope) line.steps.t.forEach((t, n) => pen.lineTo(chart.x(t), y(line.steps.v[n])));
          else eachStep(line.steps, line.end, (from, to, v) => { pen.lineTo(chart.x(from), y(v)); pen.lineTo(chart.x(to), y(v)); });
          pen.stroke();
        }
      },
      find: (t) => ({
        title: `${label} at ${time(t)}`,
        lines: inUse().map((line) => [line.name + (line.steps.mean ? " (mean)" : ""), t > line.end ? "ended" : `${number(line.at(t))} ${unitName}`.trim()]),
      }),
      move: (spot, key, chart) => along(spot, key, chart, [height / 2]),
    });
    chart.canvas.id = `curve-${id}`;
  }
  /** What is known at t: the step, or between two points of a slope the point between. */
  function reader(steps) {
    return (t) => {
      const n = stepAt(steps, t);
      if (!steps.slope || n + 1 >= steps.t.length) return steps.v[n];
      return steps.v[n] + ((steps.v[n + 1] - steps.v[n]) * (t - steps.t[n])) / (steps.t[n + 1] - steps.t[n]);
    };
  }
  function perEpisode(parent, id, label, unitName) {
    curves(parent, id, label, unitName, episodes.map((episode, e) => ({
      name: episode.policy, steps: episode.series[id], at: reader(episode.series[id]), end: episode.end_s, episode: e,
      colour: () => episodeColour(e), dash: e === 1 ? [6, 4] : [],
    })));
  }
  function prices(parent) {
    const lines = data.priced.map((r) => ({
      name: regions[r].name, steps: data.prices[r], at: reader(data.prices[r]), end: endS,
      colour: () => regionColour(r), dash: r >= data.colours.length ? [2, 2] : [],
    }));
    curves(parent, "price", "Price", "$/kWh", lines);
    const legend = el("div", { class: "legend" });
    for (const r of data.priced) {
      legend.append(el("span", {}, el("span", { class: "swatch", style: `background:${regionColour(r)}` }), regions[r].name));
    }
    if (data.priced.length < regions.length) legend.append(`and ${regions.length - data.priced.length} more regions, in the Gantt's hover`);
    parent.lastChild.append(legend);
  }

  // ---- the map of regions with the paths

  const maps = [];
  function map(parent, e) {
    const episode = episodes[e];
    const [width, height] = [620, 400];
    const at = (r) => [70 + regions[r].x * (width - 140), 34 + regions[r].y * (height - 80)];
    const most = Math.max(...regions.map((region) => region.gpus));
    const size = (r) => 7 + 17 * Math.sqrt(regions[r].gpus / most);
    const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Regions and links, ${episode.policy}` });
    const curve = (u, v) => { // bent to its right, so that both directions are seen; from rim to rim
      const [[x1, y1], [x2, y2]] = [at(u), at(v)];
      const length = Math.hypot(x2 - x1, y2 - y1) || 1;
      const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
      const middle = [(x1 + x2) / 2 - dy * length * 0.09, (y1 + y2) / 2 + dx * length * 0.09];
      return `M${x1 + dx * size(u)},${y1 + dy * size(u)} Q${middle[0]},${middle[1]} ${x2 - dx * (size(v) + 5)},${y2 - dy * (size(v) + 5)}`;
    };
    const hover = (node, hit) => {
      const show = (event) => {
        const box = node.getBoundingClientRect();
        showTip(hit(), event.clientX || box.left + box.width / 2, event.clientY || box.top + box.height / 2);
      };
      node.addEventListener("pointermove", show);
      node.addEventListener("focus", (event) => { show(event); say(spoken(hit())); });
      node.addEventListener("pointerleave", () => showTip(null));
      node.addEventListener("blur", () => showTip(null));
    };
    const faint = el("g");
    for (const [u, v] of data.links) if (regions.length <= 20) faint.append(el("path", { d: curve(u, v), fill: "none", stroke: "var(--line)", "stroke-width": 1 }));
    const used = el("g");
    const arrow = `arrow-${e}`;
    const head = el("path", { d: "M0,0 L8,4 L0,8 z", fill: "context-stroke" });
    svg.append(el("defs", {}, el("marker", { id: arrow, viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, head)));
    for (const link of episode.links) {
      const name = `${regions[link.from].name} → ${regions[link.to].name}`;
      const hit = () => ({ title: name + policyTitle(e), lines: [
        ["bandwidth", `${number(link.gbps)} Gbit/s`], ["latency", `${number(link.latency_ms)} ms`],
        ["reserved, mean", percent(link.mean)], ["reserved, most", percent(link.use.high)], ["jobs over it", `${link.jobs}`],
      ] });
      const node = el("path", { d: curve(link.from, link.to), fill: "none", stroke: ramp(link.use.high), "stroke-width": 2 + 6 * link.mean, "marker-end": `url(#${arrow})`, tabindex: 0, role: "img", "aria-label": name });
      hover(node, hit);
      used.append(node);
    }
    const chosen = el("g");
    const nodes = el("g");
    regions.forEach((region, r) => {
      const [x, y] = at(r);
      const hit = () => ({ title: region.name + policyTitle(e), lines: [
        ["GPUs", `${region.gpus}`], ["busy, mean", percent(episode.busy_mean[r])],
        ["power per GPU, with PUE", `${number(region.kw_per_gpu)} kW`], ["price, mean", `${number(region.price_mean)} $/kWh`],
        ["jobs", `${episode.region_jobs[r]}`],
      ] });
      const dot = el("g", { tabindex: 0, role: "img", "aria-label": region.name },
        el("circle", { cx: x, cy: y, r: size(r), fill: "var(--free)", stroke: "var(--ink)" }),
        el("circle", { cx: x, cy: y, r: size(r) * Math.sqrt(Math.min(1, episode.busy_mean[r])), fill: "var(--soft)" }));
      hover(dot, hit);
      nodes.append(dot);
      if (regions.length <= 30) nodes.append(el("text", { x, y: y + size(r) + 14, "text-anchor": "middle" }, region.name));
    });
    svg.append(faint, used, chosen, nodes);
    const box = el("div", { class: "chart" }, el("p", {}, el("strong", {}, episode.policy)), svg);
    parent.append(box);
    maps.push(() => {
      box.hidden = !shown[e];
      chosen.replaceChildren();
      used.style.opacity = selected === null ? 1 : 0.2;
      if (selected === null) return;
      const path = episode.jobs.path[row.get(selected)];
      path.forEach((r, n) => {
        const [x, y] = at(r);
        chosen.append(el("circle", { cx: x, cy: y, r: size(r) + 4, fill: "none", stroke: colour(selected), "stroke-width": 5 }));
        if (n + 1 < path.length) chosen.append(el("path", { d: curve(r, path[n + 1]), fill: "none", stroke: colour(selected), "stroke-width": 5, "marker-end": `url(#${arrow})` }));
      });
    });
  }

  // ---- tables

  function cell(value, column) {
    if (value === null || value === undefined) return "–";
    return typeof value === "number" ? (column.show || number)(value) : `${value}`;
  }

  const tableRows = [];
  function jobTable(parent) {
    const columns = [
      { name: "job", text: true, of: (i) => jobs.id[i], button: true },
      { name: "model", text: true, of: (i) => jobs.model[i] },
      { name: "arrival", unit: unit.name, of: (i) => jobs.arrival_s[i] / unit.seconds },
      { name: "K*", unit: "GPUs", of: (i) => jobs.k_star[i] },
      { name: "E(1)", unit: unit.name, of: (i) => jobs.single_gpu_s[i] / unit.seconds },
    ];
    const jct = (e, i) => (episodes[e].jobs.start_s[i] === null ? null : episodes[e].jobs.finish_s[i] - jobs.arrival_s[i]);
    episodes.forEach((episode, e) => {
      const own = episode.jobs;
      const per = (f) => (i) => (own.start_s[i] === null ? null : f(i));
      columns.push(
        { group: episode.policy, name: "wait", unit: unit.name, of: per((i) => (own.start_s[i] - jobs.arrival_s[i]) / unit.seconds) },
        { name: "run", unit: unit.name, of: per((i) => (own.finish_s[i] - own.start_s[i]) / unit.seconds) },
        { name: "JCT", unit: unit.name, of: per((i) => jct(e, i) / unit.seconds) },
        { name: "GPUs", unit: "", of: per((i) => own.gpus[i]) },
        { name: "hop", unit: "Gbit/s", of: per((i) => own.gbps[i]) },
        { name: "iteration", unit: "s", of: per((i) => own.iteration_s[i]) },
        { name: "energy", unit: "kWh", of: per((i) => own.energy_kwh[i]) },
        { name: "cost", unit: "$", of: per((i) => own.cost_usd[i]) },
        { name: "path", text: true, of: (i) => whereOf(e, i) },
      );
    });
    if (two) {
      const signed = (v) => (v > 0 ? `+${number(v)}` : number(v));
      const both = (f) => (i) => (jct(0, i) === null || jct(1, i) === null ? null : f(i));
      columns.splice(5, 0,
        { group: `${episodes[1].policy} − ${episodes[0].policy}`, name: "JCT", unit: unit.name, difference: true, show: signed, of: both((i) => (jct(1, i) - jct(0, i)) / unit.seconds) },
        { name: "cost", unit: "$", difference: true, show: signed, of: both((i) => episodes[1].jobs.cost_usd[i] - episodes[0].jobs.cost_usd[i]) });
    }
    const order = jobs.id.map((_, i) => i);
    let limit = 100;
    const body = el("tbody");
    const more = el("button", { type: "button", onclick: () => { limit += 400; fill(); } });
    const fill = () => {
      body.replaceChildren();
      tableRows.length = 0;
      for (const i of order.slice(0, limit)) {
        const id = jobs.id[i];
        const tr = el("tr");
        for (const column of columns) {
          const value = column.of(i);
          if (column.button) {
            const name = el("button", { type: "button", onclick: () => select(id) }, el("span", { class: "swatch", style: `background:${colour(id)}` }), `${id} ${jobs.name[i]}`);
            tr.append(el("td", { class: "text" }, name));
            continue;
          }
          const mark = column.difference && value ? (value > 0 ? "for-a" : "for-b") : "";
          tr.append(el("td", { class: column.text ? "text" : mark }, cell(value, column)));
        }
        body.append(tr);
        tableRows.push([id, tr]);
      }
      more.hidden = limit >= order.length;
      more.textContent = `Show more (${Math.min(limit, order.length)} of ${order.length})`;
      mark();
    };
    const groups = el("tr");
    const heads = el("tr");
    let span = null;
    columns.forEach((column, c) => {
      if (column.group) { span = el("th", { class: "group", colspan: 0, scope: "colgroup" }, column.group); groups.append(span); }
      else if (c === 0) { span = el("th", { colspan: 0 }); groups.append(span); }
      span.setAttribute("colspan", Number(span.getAttribute("colspan")) + 1);
      const head = el("th", { class: column.text ? "text" : "", scope: "col", "aria-sort": "none" });
      head.append(el("button", { type: "button", onclick: () => sort(column, head) }, column.name), column.unit ? el("small", {}, column.unit) : "");
      heads.append(head);
    });
    function sort(column, head) {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads.children) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (i) => { const v = column.of(i); return v === null ? -Infinity : v; };
      const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
      order.sort((i, j) => (down ? -1 : 1) * compare(value(i), value(j)) || i - j);
      fill();
    }
    if (data.aggregated) parent.append(el("p", { class: "note" }, `The ${jobs.id.length} jobs of longest JCT of ${data.n_jobs}; all of them are in ${data.csv}.`));
    parent.append(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of jobs" }, el("table", { id: "jobs" }, el("thead", {}, groups, heads), body)), more);
    fill();
  }
  function mark() { for (const [id, tr] of tableRows) tr.classList.toggle("chosen", id === selected); }

  function summary(parent) {
    const head = el("tr", {}, el("th", { class: "text", scope: "col" }, ""));
    for (const [e, episode] of episodes.entries()) head.append(el("th", { scope: "col" }, el("span", { class: `dash ${e ? "b" : ""}` }), episode.policy));
    if (two) head.append(el("th", { scope: "col" }, "difference"), el("th", { scope: "col" }, "ratio"), el("th", { class: "text", scope: "col" }, "better"));
    const body = el("tbody");
    for (const metric of data.metrics) {
      const values = episodes.map((episode) => episode.metrics[metric.key] / metric.scale);
      const tr = el("tr", {}, el("th", { class: "text", scope: "row" }, metric.unit ? `${metric.label} (${metric.unit})` : metric.label));
      for (const value of values) tr.append(el("td", {}, number(value)));
      if (two) {
        const gap = values[1] - values[0];
        const better = gap && metric.lower !== null ? ((gap < 0) === metric.lower ? "for-b" : "for-a") : "";
        tr.append(el("td", { class: better }, gap > 0 ? `+${number(gap)}` : number(gap)));
        tr.append(el("td", { class: better }, values[0] > 0 && values[1] > 0 ? number(values[1] / values[0], 3) : "–"));
        tr.append(el("td", { class: `text ${better}` }, better ? episodes[better === "for-a" ? 0 : 1].policy : ""));
      }
      body.append(tr);
    }
    parent.append(el("div", { class: "scroll" }, el("table", { id: "summary" }, el("thead", {}, head), body)));
  }

  // ---- why each decision was made

  function decisions(parent) {
    let e = 0;
    let k = 0;
    const box = el("div", { id: "reasons", "aria-live": "polite" });
    const choice = el("select", { id: "decision", "aria-label": "Decision", onchange: () => go(Number(choice.value)) });
    const which = two ? el("select", { "aria-label": "Policy", onchange: () => { e = Number(which.value); list(); go(0); } },
      ...episodes.map((episode, n) => el("option", { value: n }, episode.policy))) : null;
    const step = (by) => () => go(k + by);
    const earlier = el("button", { type: "button", onclick: step(-1) }, "‹ earlier");
    const later = el("button", { type: "button", onclick: step(1) }, "later ›");
    parent.append(el("div", { class: "row" }, which, earlier, choice, later), box);
    function list() {
      choice.replaceChildren(...episodes[e].decisions.map((d, n) => el("option", { value: n }, `${n}: ${time(d.time_s)}, ${d.text}`)));
    }
    function go(n) {
      const all = episodes[e].decisions;
      k = Math.max(0, Math.min(all.length - 1, n));
      earlier.disabled = k <= 0;
      later.disabled = k >= all.length - 1;
      box.replaceChildren();
      if (all.length === 0) return;
      choice.value = k;
      const { reasons, decision_us: took } = all[k];
      box.append(el("p", {}, el("strong", {}, reasons ? reasons.sentence : `The policy ${all[k].text}.`), took > 0 ? ` Decided in ${number(took, 3)} µs.` : ""));
      if (reasons) {
        const facts = el("dl", { class: "facts" });
        for (const fact of reasons.facts) facts.append(el("dt", {}, fact.label), el("dd", {}, `${cell(fact.value, {})} ${fact.unit}`.trim()));
        box.append(facts);
        for (const table of reasons.tables) box.append(reasonTable(table));
      }
      if (episodes[e].reasons_note) box.append(el("p", { class: "note" }, episodes[e].reasons_note));
    }
    list();
    go(0);
    openDecision = (job) => {
      const n = episodes[e].decisions.findIndex((d) => d.job === job);
      if (n >= 0) go(n);
    };
  }
  let openDecision = () => {};
  function reasonTable(table) {
    const text = (c) => table.rows.some((r) => typeof r[c] === "string");
    const head = el("tr", {}, ...table.columns.map((column, c) => el("th", { class: text(c) ? "text" : "", scope: "col" }, column.name, column.unit ? el("small", {}, column.unit) : "")));
    const body = el("tbody", {}, ...table.rows.map((r) => {
      const kept = r.some((value) => value === "chosen" || value === "starts");
      return el("tr", { class: kept ? "kept" : null }, ...r.map((value, c) => {
        const wide = typeof value === "string" && value.length > 40;
        return el("td", { class: `${text(c) ? "text" : ""} ${wide ? "wide" : ""}` }, cell(value, {}));
      }));
    }));
    const note = table.left_out ? el("p", { class: "note" }, `${table.left_out} more rows: see eval.explain.`) : null;
    const holder = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.title }, el("table", {}, el("caption", {}, table.title), el("thead", {}, head), body));
    return el("div", {}, holder, note);
  }

  // ---- selection, panels, toolbar

  function select(job) {
    selected = selected === job ? null : job;
    const detail = document.getElementById("detail");
    detail.replaceChildren();
    if (selected !== null) {
      const grid = el("div", { class: "grid" });
      episodes.forEach((episode, e) => {
        const list = el("dl", { class: "facts" });
        for (const [label, value] of jobLines(e, selected)) list.append(el("dt", {}, label), el("dd", {}, value));
        grid.append(el("div", {}, two ? el("strong", {}, episode.policy) : null, list));
      });
      detail.append(el("div", { class: "row" }, el("span", { class: "swatch", style: `background:${colour(selected)}` }), el("strong", {}, jobTitle(selected)),
        el("button", { type: "button", onclick: () => select(null) }, "Clear selection")), grid);
      openDecision(selected);
    }
    mark();
    maps.forEach((draw) => draw());
    drawAll();
  }

  function panel(id, title, about, build) {
    const box = el("details", { id, open: true }, el("summary", {}, el("h2", {}, title), about ? el("span", { class: "about" }, about) : null));
    document.getElementById("main").append(box);
    build(box);
    box.addEventListener("toggle", drawAll);
  }
  const perPolicy = (draw) => (box) => episodes.forEach((_, e) => draw(box, e));
  const inGrid = (draw) => (box) => { const grid = el("div", { class: "grid" }); box.append(grid); draw(grid); };

  function toolbar() {
    const bar = document.getElementById("toolbar");
    if (two) {
      episodes.forEach((episode, e) => {
        const button = el("button", { type: "button", "aria-pressed": "true", id: `show-${e}`, onclick: () => {
          shown[e] = !shown[e];
          button.setAttribute("aria-pressed", String(shown[e]));
          maps.forEach((draw) => draw());
          drawAll();
        } }, el("span", { class: `dash ${e ? "b" : ""}` }), episode.policy);
        bar.append(button);
      });
    }
    const button = (label, text, act) => bar.append(el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text));
    button("Earlier", "◀", () => pan(-0.25));
    button("Zoom in", "+", () => zoom(0.5));
    button("Zoom out", "−", () => zoom(2));
    button("Later", "▶", () => pan(0.25));
    button("Whole episode", "All", () => zoom(Infinity));
    const themes = ["auto", "light", "dark"];
    let theme = 0;
    const themed = el("button", { type: "button", id: "theme", onclick: () => {
      theme = (theme + 1) % themes.length;
      if (theme) document.documentElement.dataset.theme = themes[theme];
      else delete document.documentElement.dataset.theme;
      themed.textContent = `Theme: ${themes[theme]}`;
      drawAll();
    } }, "Theme: auto");
    bar.append(themed);
  }

  document.getElementById("title").textContent = data.title;
  toolbar();
  panel("panel-summary", "Summary", `${data.n_jobs} jobs, ${regions.length} regions, seed ${data.seed}`, summary);
  panel("panel-gantt", "Who held which GPUs", "one lane per region, its height = GPUs; hover or use the arrow keys", (box) => {
    perPolicy(gantt)(box);
    box.append(el("div", { id: "detail", "aria-live": "polite" }));
  });
  panel("panel-links", "Links", "reserved share of the bandwidth", (box) => {
    const stops = [0, 0.25, 0.5, 0.75, 1].map(ramp).join(",");
    box.append(el("div", { class: "legend" }, el("span", {}, "0 %", el("span", { class: "ramp", style: `background:linear-gradient(90deg,${stops})` }), "100 %")));
    perPolicy(links)(box);
  });
  panel("panel-waiting", "Jobs: waiting and running", "", perPolicy(waiting));
  panel("panel-curves", "Queue, price and spend", two ? "full line: the first policy, dashed: the second" : "", inGrid((grid) => {
    perEpisode(grid, "queue", "Jobs waiting", "jobs");
    perEpisode(grid, "running", "Jobs running", "jobs");
    perEpisode(grid, "busy", "GPUs held", "GPUs");
    perEpisode(grid, "alpha", "Alpha (Eq. 11): reserved share of all bandwidth", "");
    prices(grid);
    perEpisode(grid, "spend", "Electricity bill per hour", "$/h");
    perEpisode(grid, "spent", "Electricity bill so far", "$");
    perEpisode(grid, "power", "Power with PUE", "kW");
  }));
  panel("panel-map", "Regions and paths", "disc = GPUs, filled = mean use; arrow = used link, colour = its highest use, width = its mean use", inGrid((grid) => perPolicy(map)(grid)));
  panel("panel-decisions", "Why each decision was made", "", decisions);
  panel("panel-jobs", "Jobs", "sort by a heading; a job's button marks it everywhere", jobTable);
  drawAll();
  let lastWidth = document.documentElement.clientWidth;
  new ResizeObserver(() => {
    const { clientWidth } = document.documentElement;
    if (clientWidth !== lastWidth) drawAll();
    lastWidth = clientWidth;
  }).observe(document.documentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.documentElement.dataset.ready = "true";
})();
