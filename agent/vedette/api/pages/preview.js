// The preview page. Text from models, labels and cameras only ever becomes text nodes.

import { drawPlot, milliseconds } from "/preview/plots.js";

const STATE_EVERY_MS = 1000, PICTURE_EVERY_MS = 200, RETRY_MS = 1000, TIMEOUT_MS = 8000;
// What is not known is never shown as nothing.
const UNKNOWN = "Not known: the agent does not answer.";
const cards = new Map();
const byId = (id) => document.getElementById(id);
const count = (value) => Number(value).toLocaleString("en");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function made(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB"];
  let step = 0;
  for (; value >= 1000 && step < units.length - 1; step += 1) value /= 1000;
  return `${step && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[step]}`;
}

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.round(s / 86400)} days`;
}

// Rows are [term, value, class]; a value that is empty or null is left out, and a term of "" is a whole line.
function fill(id, rows, nothing) {
  const list = byId(id), shown = rows.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const nodes = shown.flatMap(([term, value, className]) => {
    const cell = made("dd");
    if (className) cell.append(made("span", value, `badge ${className}`));
    else cell.textContent = value;
    if (term === "") { cell.className = "wide"; return [cell]; }
    return [made("dt", term), cell];
  });
  list.replaceChildren(...(nodes.length ? nodes : [made("dd", nothing, "wide")]));
}

function badge(node, text, className) {
  node.textContent = text;
  node.className = `badge ${className}`;
}

function showModel(state) {
  const model = state.model;
  if (!model) badge(byId("ready"), "agent away", "bad");
  else if (model.ready) badge(byId("ready"), "ready", "good");
  else badge(byId("ready"), "not ready", "warn");
  const ref = (model && model.model) || (state.agent && state.agent.model);
  const test = model && model.self_test;
  fill("model", [
    ["name", ref && ref.name], ["version", ref && ref.version], ["task", model && model.task],
    ["bundle", model && model.bundle_bytes ? bytes(model.bundle_bytes) : ""],
    ["digest", ref && `${ref.sha256.slice(0, 12)}…`],
    ["golden inputs", test ? `${test.cases} answered, ${Math.round(test.worst * 100)} % of tolerance` : ""],
    ["", model && !model.ready ? model.reason : ""],
  ], state.model_error ? UNKNOWN : "No model is loaded.");
  const engine = (model && model.engine) || (state.agent && state.agent.engine);
  fill("accelerator", engine ? [
    ["asked", engine.asked.join(", ")],
    ["in effect", engine.effective, engine.degraded ? "warn" : "good"],
    ["runtime", engine.runtime], ["threads", engine.threads],
    ["known by", engine.evidence],
    ["nodes", Object.entries(engine.nodes).map(([name, n]) => `${name} ${n}`).join(", ")],
    ["one run", milliseconds(engine.check_ms)], ["load", milliseconds(engine.load_ms)],
    ...engine.skipped.map((rung) => ["", `${rung.accelerator}: ${rung.reason}`]),
  ] : [], state.model_error ? UNKNOWN : "Nothing is loaded.");
}

const PHASES = ["fetch", "verify_patch", "apply", "verify_out", "preflight", "shadow", "ready", "switch", "trial", "confirm"];
const spoken = (word) => word.replaceAll("_", " ");

function releaseName(agent, ref) {
  return ref ? agent.releases[ref.sha256] || `${ref.sha256.slice(0, 12)}…` : "";
}

// One segment a phase; the one that fetches fills with the bytes.
function showPhases(phase, part) {
  const at = PHASES.indexOf(phase), place = byId("phases");
  place.hidden = at < 0;
  place.setAttribute("aria-label", `phase ${at + 1} of ${PHASES.length}: ${spoken(phase)}`);
  place.replaceChildren(...PHASES.map((name, index) => {
    const segment = made("span"), filled = made("i");
    segment.title = spoken(name);
    filled.style.width = index < at ? "100%" : index > at ? "0" : name === "fetch" ? `${(100 * part).toFixed(1)}%` : "50%";
    segment.append(filled);
    return segment;
  }));
}

function showUpdate(agent) {
  const update = agent && agent.update;
  const needed = update ? update.bytes_needed : 0;
  showPhases(update ? update.phase : "", needed ? Math.min(1, update.bytes_fetched / needed) : 0);
  const last = update && update.last_result;
  const mark = update && (["safe", "rollback"].includes(update.phase) ? "bad" : PHASES.includes(update.phase) ? "warn" : "good");
  fill("update", update ? [
    ["phase", spoken(update.phase), mark],
    ["fetched", needed ? `${bytes(update.bytes_fetched)} of ${bytes(needed)}` : ""],
    ["candidate", releaseName(agent, update.candidate)],
    ["rollout", update.candidate && update.candidate.rollout],
    ["on trial for", update.trial_used_s ? duration(update.trial_used_s) : ""],
    ["cause", update.cause && spoken(update.cause)],
    ["active", releaseName(agent, update.active)], ["before", releaseName(agent, update.previous)],
    ["last result", last && `${releaseName(agent, last)}: ${spoken(last.result)}${last.cause ? ` (${spoken(last.cause)})` : ""}`],
    ["refused", update.blacklist.map((entry) => releaseName(agent, entry)).join(", ")],
    ["next look", update.next_look_s === null ? "" : `in ${duration(update.next_look_s)}`],
    ["", update.trouble], ["", update.detail], ["", agent.look_fault], ["", agent.clock_doubt],
  ] : [["", agent && agent.no_update]], agent ? "No updates are configured." : UNKNOWN);
}

function showLink(agent) {
  const link = agent && agent.link;
  fill("link", link ? [
    ["broker", link.broker], ["state", link.connected ? "connected" : "away", link.connected ? "good" : "bad"],
    ["for", duration(link.since_s)], ["protocol", link.protocol === 5 ? "MQTT 5" : link.protocol ? "MQTT 3.1.1" : ""],
    ["connects", count(link.connects)], ["last loss", link.last_loss],
    ["waiting", `${count(link.waiting_events)} events, ${count(link.waiting_reports)} reports, ${bytes(link.waiting_bytes)}`],
    ["dropped", link.dropped_reports + link.dropped_results ? `${count(link.dropped_reports)} reports, ${count(link.dropped_results)} results` : ""],
  ] : [], agent ? "No MQTT link is configured." : UNKNOWN);
}

function showDoor(door) {
  const asked = Object.entries(door.inferences);
  fill("door", [
    ["open for", duration(door.open_s)], ["ring", door.ring ? "lent" : "not yet", door.ring ? "good" : "warn"],
    ["inferences", asked.length ? asked.map(([status, n]) => `${count(n)} × ${status}`).join(", ") : "none"],
    ["under way", `${count(door.in_flight)}, ${count(door.waiting)} waiting`],
    ["in memory", bytes(door.held_bytes)],
  ], "");
}

const STATES = { running: "good", ended: "", waiting: "warn", opening: "warn", held: "warn", failed: "bad" };

function showLedger(cameras) {
  const sum = (counts) => Object.values(counts).reduce((total, n) => total + n, 0);
  byId("ledger").replaceChildren(...cameras.map((camera) => {
    const row = made("tr"), state = made("td");
    state.append(made("span", camera.state, `state ${STATES[camera.state] || ""}`));
    const causes = [...Object.entries(camera.dropped), ...Object.entries(camera.failed)];
    row.append(
      made("td", camera.camera), state, made("td", camera.fps.toFixed(1), "n"), made("td", count(camera.frames_in), "n"),
      made("td", count(camera.ok), "n"), made("td", count(camera.in_flight), "n"),
      made("td", count(sum(camera.dropped)), "n"), made("td", count(sum(camera.failed)), "n"),
      made("td", causes.map(([cause, n]) => `${spoken(cause)} ${count(n)}`).join(", "), "quiet"),
    );
    return row;
  }));
}

function cardOf(name) {
  if (cards.has(name)) return cards.get(name);
  const node = byId("camera-template").content.firstElementChild.cloneNode(true);
  node.querySelector("h2").textContent = name;
  node.querySelector("img").alt = `live picture of ${name}`;
  byId("cameras").append(node);
  const card = { name, node, pictures: false, loop: false };
  cards.set(name, card);
  return card;
}

function showAnswers(card, answer) {
  const list = card.node.querySelector(".answers");
  if (!answer) { list.replaceChildren(made("li", "no answer yet", "quiet")); return; }
  if (answer.failed) { list.replaceChildren(made("li", answer.failed, "bad")); return; }
  const items = answer.found.map((found) => {
    const item = made("li");
    item.append(made("b", found.label), ` ${(100 * found.score).toFixed(0)} %`);
    return item;
  });
  if (answer.count > answer.found.length) items.push(made("li", `and ${answer.count - answer.found.length} more`, "quiet"));
  list.replaceChildren(...(items.length ? items : [made("li", "nothing found", "quiet")]));
}

function showCameras(state) {
  const listed = (state.agent ? state.agent.cameras : []).filter((camera) => camera.camera !== "http" || camera.frames_in);
  const names = new Set([...state.pictures, ...listed.map((camera) => camera.camera).filter((name) => name !== "http")]);
  for (const [name, card] of cards) if (!names.has(name)) { card.pictures = false; card.node.remove(); cards.delete(name); }
  byId("no-cameras").hidden = names.size > 0;
  byId("no-cameras").textContent = state.agent ? "No camera is running." : UNKNOWN;
  for (const name of names) {
    const card = cardOf(name), camera = listed.find((one) => one.camera === name);
    const mark = card.node.querySelector(".title .state");
    mark.textContent = camera ? camera.state : "";
    mark.className = `state ${(camera && STATES[camera.state]) || ""}`;
    mark.hidden = !camera;
    const series = state.latency[name], answer = state.answers[name];
    const total = answer && answer.total_ms !== null ? ` · ${milliseconds(answer.total_ms)}` : "";
    card.node.querySelector(".rate").textContent = camera ? `${camera.fps.toFixed(1)} answers/s${total}` : "";
    showAnswers(card, answer);
    const plot = card.node.querySelector(".plot");
    if (series) drawPlot(plot, series, state.stages);
    else plot.replaceChildren();
    card.pictures = state.pictures.includes(name);
    if (!card.pictures) showPicture(card, null, camera ? `no picture (${camera.state})` : "no picture");
    else if (!card.loop) showPictures(card);
  }
  showLedger(listed);
  byId("ledger-card").hidden = !listed.length;
}

function showPicture(card, url, words) {
  const img = card.node.querySelector("img"), note = card.node.querySelector(".picture p");
  if (url) {
    const before = img.src;
    img.onload = img.onerror = () => { if (before.startsWith("blob:")) URL.revokeObjectURL(before); };
    img.src = url;
    img.hidden = false;
    img.parentNode.classList.remove("empty");
  }
  note.textContent = words;
  note.hidden = !words;
}

async function showPictures(card) {
  card.loop = true;
  while (card.pictures && card.node.isConnected) {
    if (document.hidden) { await pause(RETRY_MS); continue; }
    const due = performance.now() + PICTURE_EVERY_MS;
    try {
      const answer = await fetch(`/preview/picture/${encodeURIComponent(card.name)}`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (answer.ok) showPicture(card, URL.createObjectURL(await answer.blob()), "");
      else { showPicture(card, null, (await answer.json()).error); await pause(RETRY_MS); }
    } catch { await pause(RETRY_MS); }
    await pause(Math.max(20, due - performance.now()));
  }
  card.loop = false;
}

function show(state) {
  const agent = state.agent;
  byId("device").textContent = agent ? agent.device : "";
  byId("uptime").textContent = agent ? `agent ${agent.agent} · up ${duration(agent.uptime_s)}` : "";
  const trouble = state.agent_error || (state.model && !state.model.ready ? state.model.reason : "");
  byId("trouble").textContent = trouble;
  byId("trouble").hidden = !trouble;
  document.title = agent ? `${agent.device} · Vedette` : "Vedette";
  showModel(state);
  showUpdate(agent);
  showLink(agent);
  showDoor(state.door);
  showCameras(state);
}

// What stands there is what was; it must not pass for what is.
function showStale(why, seen) {
  badge(byId("ready"), "no connection", "bad");
  const ago = seen ? `; what stands below was so ${duration((performance.now() - seen) / 1000)} ago` : "";
  byId("trouble").textContent = `the agent does not answer: ${why}${ago}`;
  byId("trouble").hidden = false;
  document.querySelector("main").classList.add("stale");
  if (!seen) byId("no-cameras").textContent = UNKNOWN;
}

async function watch() {
  for (let seen = 0; ;) {
    if (!document.hidden) {
      try {
        const answer = await fetch("/preview/state", { signal: AbortSignal.timeout(TIMEOUT_MS) });
        if (!answer.ok) throw new Error((await answer.json()).error);
        show(await answer.json());
        document.querySelector("main").classList.remove("stale");
        seen = performance.now();
      } catch (error) {
        showStale(error.message, seen);
      }
    }
    await pause(STATE_EVERY_MS);
  }
}

watch();
