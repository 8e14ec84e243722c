// Latency plots: stacked means of the stages, and the 95th percentile of the whole, over the last minutes.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 460, HEIGHT = 132, LEFT = 40, RIGHT = 6, TOP = 8, BOTTOM = 20;

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// 1, 2 or 5 times a power of ten, so that the axis has round figures.
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value) * power;
}

export function milliseconds(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

// A step without answers is a gap, not a slope: runs are drawn one by one.
function runsOf(series) {
  const runs = [];
  series.age_s.forEach((age, index) => {
    const last = runs[runs.length - 1];
    if (last && series.age_s[last[last.length - 1]] - age <= series.step_s * 1.5) last.push(index);
    else runs.push([index]);
  });
  return runs;
}

export function drawPlot(place, series, stages) {
  const totals = series.age_s.map((_, i) => stages.reduce((sum, stage) => sum + series.stages_ms[stage][i], 0));
  const top = roundUp(Math.max(...totals, ...series.p95_ms) * 1.05);
  const x = (age) => LEFT + (1 - age / series.span_s) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
  const last = totals.length - 1;
  const words = `latency: ${milliseconds(totals[last])} in the mean, ${milliseconds(series.p95_ms[last])} at p95`;
  const svg = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words });
  for (const part of [0, 0.5, 1]) {
    const at = y(top * part);
    svg.append(node("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at }));
    svg.append(node("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, String(Number((top * part).toPrecision(3)))));
  }
  const minutes = series.span_s / 60;
  for (let minute = 0; minute <= minutes; minute += 1) {
    const label = minute === 0 ? "now" : minute === minutes ? `−${minute} min` : `−${minute}`;
    const anchor = minute === 0 ? "end" : minute === minutes ? "start" : "middle";
    svg.append(node("text", { x: x(minute * 60), y: HEIGHT - 5, "text-anchor": anchor }, label));
  }
  const floor = totals.map(() => 0);
  for (const stage of stages) {
    const ceiling = floor.map((value, i) => value + series.stages_ms[stage][i]);
    for (const run of runsOf(series)) svg.append(node("path", { class: stage, d: band(run, series, floor, ceiling, x, y) }));
    ceiling.forEach((value, i) => { floor[i] = value; });
  }
  for (const run of runsOf(series)) {
    const line = run.map((i, at) => `${at ? "L" : "M"}${x(series.age_s[i]).toFixed(1)} ${y(series.p95_ms[i]).toFixed(1)}`);
    svg.append(node("path", { class: "p95", d: line.join("") }));
  }
  place.replaceChildren(svg, legend(series, stages, totals));
}

function band(run, series, floor, ceiling, x, y) {
  // A single step would have no width: it is drawn one step wide.
  const half = run.length === 1 ? series.step_s / 2 : 0;
  const over = [], under = [];
  for (const i of run) {
    const ages = half ? [series.age_s[i] + half, series.age_s[i] - half] : [series.age_s[i]];
    for (const age of ages) {
      over.push(`${x(age).toFixed(1)} ${y(ceiling[i]).toFixed(1)}`);
      under.push(`${x(age).toFixed(1)} ${y(floor[i]).toFixed(1)}`);
    }
  }
  return `M${over.join("L")}L${under.reverse().join("L")}Z`;
}

function legend(series, stages, totals) {
  const place = document.createElement("div");
  place.className = "legend";
  const last = totals.length - 1;
  const entry = (className, text) => {
    const item = document.createElement("span"), mark = document.createElement("i");
    mark.className = className;
    item.append(mark, text);
    place.append(item);
  };
  for (const stage of stages) entry(stage, `${stage} ${milliseconds(series.stages_ms[stage][last])}`);
  entry("dash", `p95 ${milliseconds(series.p95_ms[last])}`);
  return place;
}
