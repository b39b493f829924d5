// The page of a run: reads server-sent events and writes text. It sends nothing but GET requests.

import { draw } from "./chart.js";

const $ = (id) => document.getElementById(id);
const MOST_ROWS = 200;
const STATES = {
  training: ["good", "training"],
  "waiting for clients": ["warn", "waiting for clients"],
  complete: ["good", "complete"],
  stopped: ["warn", "stopped"],
  failed: ["bad", "failed"],
  gone: ["bad", "the process is gone"],
  unknown: ["", "unknown"],
};
const CLIENT = {
  connected: ["good", "connected"], slow: ["warn", "slow"], waiting: ["warn", "waiting to be let in"],
  lost: ["bad", "lost"], absent: ["warn", "not here yet"], over: ["", "run ended"], "in process": ["", "in this process"],
};
const RANK = { lost: 0, slow: 1, absent: 2, waiting: 3 };
const STAGES = {
  client_data: "clients: load data", client_forward: "clients: forward", client_encode: "clients: encode",
  client_decode: "clients: decode", client_backward: "clients: backward", server_decode: "server: decode",
  server: "server: forward and backward", server_encode: "server: encode", sync: "server: average",
  evaluation: "evaluation",
};
const KINDS = { smashed: "smashed data", labels: "labels", gradients: "gradients", sync: "shared to average", control: "control" };

const clients = new Map();
let clock = 0; // the server's time minus ours, in seconds

const size = (n) => {
  if (n === null || n === undefined) return "–";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(n) < 999.5) return `${unit === "B" ? Math.round(n) : +n.toPrecision(3)} ${unit}`;
    n /= 1000;
  }
  return `${+n.toPrecision(4)} TB`;
};
const seconds = (s) => {
  if (s === null || s === undefined) return "–";
  if (s < 1) return `${Math.round(1000 * s)} ms`;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  const all = Math.round(s), h = Math.floor(all / 3600), m = Math.floor(all / 60) % 60, two = (n) => String(n).padStart(2, "0");
  return h ? `${h}:${two(m)}:${two(all % 60)} h` : `${m}:${two(all % 60)} min`;
};
const percent = (x, round) => (round ? `${+(100 * x).toPrecision(4)} %` : `${(100 * x).toFixed(2)} %`);
const plain = (x, round) => String(round ? +x.toPrecision(3) : +x.toPrecision(4));
const writer = (metric, shares) => (shares.includes(metric) ? percent : plain);
const times = (raw, sent) => (sent ? `${(raw / sent).toFixed(2)}×` : "–");

/** Change text only where it differs, so that a screen reader is not told the same twice. */
function say(node, text) { if (node.textContent !== text) node.textContent = text; }

function cell(row, place, text, label, kind) {
  const td = row.cells[place] ?? row.insertCell();
  if (label && td.dataset.label !== label) td.dataset.label = label;
  if (kind && td.className !== kind) td.className = kind;
  say(td, text);
  return td;
}

function trim(body, rows) { while (body.rows.length > rows) body.deleteRow(-1); }

/** A bar that fills a share of its track, which is a part of the cell. */
function bar(row, place, share, whole = 1) {
  const td = row.cells[place] ?? row.insertCell();
  td.setAttribute("aria-hidden", "true");
  if (!td.firstChild) {
    const track = document.createElement("div"), one = document.createElement("div");
    track.className = "track"; one.className = "bar";
    track.append(one); td.append(track);
  }
  td.firstChild.style.width = `${Math.min(100, 100 * whole).toFixed(1)}%`;
  td.firstChild.firstChild.style.width = `${Math.min(100, 100 * share).toFixed(1)}%`;
}

function figures(found) {
  const list = $("figures");
  found.forEach(([name, value, small], place) => {
    let box = list.children[place];
    if (!box) {
      box = document.createElement("div");
      box.append(document.createElement("dt"), document.createElement("dd"));
      box.lastChild.append(document.createTextNode(""), document.createElement("small"));
      list.append(box);
    }
    say(box.firstChild, name);
    if (box.lastChild.firstChild.data !== value) box.lastChild.firstChild.data = value;
    say(box.lastChild.lastChild, small);
  });
}

function showRun(run) {
  clock = run.time - Date.now() / 1000;
  document.title = `${run.run}: ${run.state}`;
  say($("name"), run.run);
  say($("about"), run.about);
  const [kind, word] = STATES[run.state] ?? STATES.unknown;
  $("state").className = `pill ${kind}`;
  say($("state"), word);
  const alarm = run.state === "failed" ? run.reason
    : run.state === "gone" ? "The process of this run is gone. Its last checkpoint is kept: resume it with --resume." : "";
  $("alarm").hidden = !alarm;
  say($("alarm"), alarm);
  const bar = $("progress");
  if (run.steps) { bar.max = run.steps; bar.value = run.step; }
  const steps = run.steps ? `step ${run.step} of ${run.steps}` : `step ${run.step}`;
  const epochs = run.epochs ? `, epoch ${run.epoch} of ${run.epochs}` : "";
  const left = run.left_seconds !== null ? `, ${seconds(run.left_seconds)} left` : "";
  const going = run.state === "training" ? "so far" : "in all";
  const spent = run.spent_seconds !== null ? `, ${seconds(run.spent_seconds)} ${going}` : "";
  $("clients").classList.toggle("local", !run.network);
  say($("place"), steps + epochs + left + spent);
  const sent = run.traffic.reduce((sum, row) => sum + row.sent, 0);
  const raw = run.traffic.reduce((sum, row) => sum + row.raw, 0);
  const metric = run.latest[run.main];
  const smashed = run.traffic.find((row) => row.kind === "smashed" && row.direction === "up");
  figures([
    [`test ${run.main.replaceAll("_", " ")}`, metric === undefined ? "–" : writer(run.main, run.percent)(metric), "at the last evaluation"],
    ["training loss", run.latest.loss === undefined ? "–" : plain(run.latest.loss), "of the last step"],
    ["all traffic", size(sent), sent ? `${times(raw, sent)} smaller than float32` : "nothing sent yet"],
    ["smashed data up", smashed ? size(smashed.sent) : "–", smashed ? `${times(smashed.raw, smashed.sent)} smaller` : ""],
    ["left to do", run.steps ? `${Math.max(0, run.steps - run.step)} steps` : "–", run.left_seconds === null ? "" : seconds(run.left_seconds)],
  ]);
  showTraffic(run, sent, raw);
  showStages(run.seconds);
}

function showTraffic(run, sent, raw) {
  const body = $("traffic").tBodies[0];
  const rows = run.traffic.map((row) => [`${row.direction}: ${KINDS[row.kind] ?? row.kind}`, row.sent, row.raw]);
  const most = Math.max(1, ...rows.map((row) => row[2]));
  rows.forEach(([name, n, as], place) => {
    const row = body.rows[place] ?? body.insertRow();
    row.className = "";
    cell(row, 0, name); cell(row, 1, size(n), "", "n"); cell(row, 2, size(as), "", "n"); cell(row, 3, times(as, n), "", "n");
    bar(row, 4, n / as, as / most);
  });
  const total = body.rows[rows.length] ?? body.insertRow();
  total.className = "sum";
  cell(total, 0, "all"); cell(total, 1, size(sent), "", "n"); cell(total, 2, size(raw), "", "n"); cell(total, 3, times(raw, sent), "", "n");
  bar(total, 4, raw ? sent / raw : 0);
  let last = rows.length + 1;
  if (run.evaluation_bytes) {
    const row = body.rows[last] ?? body.insertRow();
    row.className = "";
    cell(row, 0, "evaluations (not in the sum)"); cell(row, 1, size(run.evaluation_bytes), "", "n");
    cell(row, 2, "", "", "n"); cell(row, 3, "", "", "n"); cell(row, 4, "");
    last += 1;
  }
  trim(body, last);
}

function showStages(found) {
  const body = $("stages").tBodies[0];
  const known = Object.entries(found).filter(([, s]) => s > 0);
  const all = known.reduce((sum, [, s]) => sum + s, 0), most = Math.max(1e-9, ...known.map(([, s]) => s));
  known.forEach(([stage, s], place) => {
    const row = body.rows[place] ?? body.insertRow();
    cell(row, 0, STAGES[stage] ?? stage); cell(row, 1, seconds(s), "", "n"); cell(row, 2, `${(100 * s / all).toFixed(1)} %`, "", "n");
    bar(row, 3, s / most);
  });
  trim(body, known.length);
}

function showClients() {
  const all = [...clients.values()];
  all.sort((a, b) => (RANK[a.state] ?? 9) - (RANK[b.state] ?? 9) || a.client - b.client);
  const body = $("clients").tBodies[0], now = Date.now() / 1000 + clock;
  all.slice(0, MOST_ROWS).forEach((one, place) => {
    const row = body.rows[place] ?? body.insertRow();
    const [kind, word] = CLIENT[one.state] ?? ["", one.state];
    row.className = kind === "good" ? "" : kind;
    row.dataset.client = one.client;
    row.dataset.state = one.state;
    cell(row, 0, one.name ? `${one.client} (${one.name})` : `client ${one.client}`, "client");
    const state = row.cells[1] ?? row.insertCell();
    if (!state.firstChild) state.append(document.createElement("span"));
    if (state.firstChild.className !== `pill ${kind}`) state.firstChild.className = `pill ${kind}`;
    say(state.firstChild, one.state === "slow" && one.pending ? `slow, owes an answer for ${seconds(one.pending)}` : word);
    const rate = (n) => (n === null ? "–" : `${size(n)}/s`);
    cell(row, 2, one.seen === null ? "–" : now - one.seen < 1 ? "now" : `${seconds(now - one.seen)} ago`, "last seen", "n live");
    cell(row, 3, seconds(one.answer), "answers in", "n live");
    cell(row, 4, rate(one.up_rate), "rate up", "n live");
    cell(row, 5, rate(one.down_rate), "rate down", "n live");
    cell(row, 6, one.bits === null ? "–" : one.bits.toFixed(2), "bits an element", "n");
    cell(row, 7, one.link || "–", "link");
    cell(row, 8, one.samples === null ? "–" : String(one.samples), "samples", "n");
    cell(row, 9, size(one.up), "sent up", "n");
    cell(row, 10, size(one.down), "sent down", "n");
  });
  trim(body, Math.min(all.length, MOST_ROWS));
  const count = (state) => all.filter((one) => one.state === state).length;
  const here = count("connected") + count("slow") + count("waiting");
  const parts = all.some((one) => one.state === "in process" || one.state === "over")
    ? [`${all.length} clients`]
    : [`${here} of ${all.length} connected`, ...["slow", "lost"].filter(count).map((s) => `${count(s)} ${s}`)];
  const owing = all.filter((one) => one.pending > 1).map((one) => (one.name ? `${one.client} (${one.name})` : one.client));
  if (owing.length) parts.push(`the run waits for client ${owing.slice(0, 5).join(", ")}`);
  if (all.length > MOST_ROWS) parts.push(`the first ${MOST_ROWS} are shown, those in trouble first`);
  say($("client-sum"), all.length ? parts.join(", ") : "Nobody is known yet.");
}

function showEvents(found) {
  const list = $("events");
  for (const event of found) {
    const item = document.createElement("li"), when = document.createElement("time");
    const level = document.createElement("span"), text = document.createElement("span");
    const at = new Date(event.time);
    item.className = event.level;
    when.dateTime = event.time;
    when.textContent = Number.isNaN(+at) ? "" : at.toLocaleTimeString([], { hour12: false });
    level.className = "level"; level.textContent = event.level;
    text.textContent = event.text;
    item.append(when, level, text);
    list.prepend(item);
  }
  while (list.children.length > 200) list.lastChild.remove();
}

let drawn = null;
function showCurves(curves) {
  drawn = curves;
  const name = curves.main, title = `Test ${name.replaceAll("_", " ")}`;
  say($("metric-title"), title);
  draw($("metric-chart"), title, [{ name, points: curves.metrics[name] ?? [] }], writer(name, curves.percent));
  draw($("loss-chart"), "Loss", [{ name: "training", points: curves.loss }, { name: "test", points: curves.test_loss }], plain);
}

const SHOW = {
  run: showRun,
  curves: showCurves,
  clients: (rows) => { for (const row of rows) clients.set(row.client, row); showClients(); },
  events: showEvents,
};

// Beyond loopback a token is asked for. It comes behind the # of the address, which browsers do not send.
let token = sessionStorage.getItem("token") ?? "";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  token = given;
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
}
let awaited = () => {};
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  $("token").value = "";
  awaited();
});

function handle(block) {
  let name = "", data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data && SHOW[name]) SHOW[name](JSON.parse(data));
}

async function follow() {
  const answer = await fetch("api/stream", token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  if (answer.status === 401) {
    sessionStorage.removeItem("token");
    $("login").hidden = false;
    say($("state"), "a token is needed");
    $("token").focus();
    await new Promise((resolve) => { awaited = resolve; });
    return;
  }
  if (!answer.ok) throw new Error(await answer.text());
  $("login").hidden = true;
  // A new connection tells everything again.
  $("events").replaceChildren();
  clients.clear();
  say($("connection"), "Live.");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    blocks.forEach(handle);
  }
}

addEventListener("resize", () => { if (drawn) showCurves(drawn); });
setInterval(() => { if (clients.size) showClients(); }, 1000);
for (let wait = 1; ; wait = Math.min(10, 2 * wait)) {
  try {
    await follow();
    wait = 1;
  } catch (error) {
    say($("connection"), `${error.message || "No answer"}.`);
  }
  if ($("login").hidden) {
    say($("connection"), "The dashboard does not answer: what is shown is the last that it told. Trying again.");
    $("state").classList.add("stale");
  }
  await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
}
