// Line charts as SVG, drawn from points [step, value].

const H = 240, LEFT = 52, RIGHT = 14, TOP = 18, BOTTOM = 38;
const NS = "http://www.w3.org/2000/svg";

function element(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Round numbers between low and high, about so many. */
export function ticks(low, high, about = 5) {
  if (!(high > low)) return [low];
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

const short = (n) => (Math.abs(n) >= 1e4 ? n.toExponential(1) : String(+n.toPrecision(3)));

/** Replace the content of `box` by a chart of series {name, points}; `say` writes a value. */
export function draw(box, title, series, say) {
  // One unit is one pixel: letters have the same size however wide the page is.
  const W = Math.max(240, Math.round(box.clientWidth) || 480);
  const shown = series.filter((one) => one.points.length);
  if (!shown.length) {
    const empty = document.createElement("p");
    empty.textContent = "nothing yet";
    box.replaceChildren(empty);
    return;
  }
  const all = shown.flatMap((one) => one.points);
  const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  const x0 = Math.min(...xs), x1 = Math.max(...xs, x0 + 1);
  let y0 = Math.min(...ys), y1 = Math.max(...ys);
  if (y0 === y1) { y0 -= Math.abs(y0) / 10 || 0.5; y1 += Math.abs(y1) / 10 || 0.5; }
  const pad = (y1 - y0) * 0.05;
  y0 -= pad; y1 += pad;
  const across = (x) => LEFT + ((W - LEFT - RIGHT) * (x - x0)) / (x1 - x0);
  const down = (y) => H - BOTTOM - ((H - TOP - BOTTOM) * (y - y0)) / (y1 - y0);
  const last = shown.map((one) => `${one.name} ${say(one.points.at(-1)[1])}`).join(", ");
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}: ${last}` });
  for (const y of ticks(y0, y1)) {
    svg.append(element("path", { class: "grid", d: `M${LEFT} ${down(y).toFixed(1)}H${W - RIGHT}` }));
    svg.append(element("text", { x: LEFT - 5, y: down(y) + 4, "text-anchor": "end" }, say(y, true)));
  }
  for (const x of ticks(x0, x1, Math.max(3, Math.floor(W / 90)))) {
    svg.append(element("text", { x: across(x), y: H - 22, "text-anchor": "middle" }, short(x)));
  }
  svg.append(element("text", { x: (W + LEFT - RIGHT) / 2, y: H - 5, "text-anchor": "middle" }, "step"));
  shown.forEach((one, place) => {
    const mark = place ? "b" : "a";
    const path = one.points.map((p) => `${across(p[0]).toFixed(1)} ${down(p[1]).toFixed(1)}`).join("L");
    svg.append(element("path", { class: mark, d: `M${path}` }));
    for (const p of one.points.length <= 40 ? one.points : [one.points.at(-1)]) {
      const dot = place
        ? element("rect", { x: across(p[0]) - 3, y: down(p[1]) - 3, width: 6, height: 6, class: "dot-b" })
        : element("circle", { cx: across(p[0]), cy: down(p[1]), r: 3, class: "dot-a" });
      dot.append(element("title", {}, `${one.name}, step ${p[0]}: ${say(p[1])}`));
      svg.append(dot);
    }
    const key = LEFT + 8 + place * 110;
    svg.append(element("path", { class: mark, d: `M${key} ${TOP - 8}h22` }));
    svg.append(element("text", { class: "key", x: key + 27, y: TOP - 4 }, one.name));
  });
  box.replaceChildren(svg);
}
