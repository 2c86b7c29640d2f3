"use strict";

// Colours first, before anything is drawn: "" follows the system, else dark or light.
const THEMES = [["", "◐", "as the system"], ["light", "○", "light"], ["dark", "●", "dark"]];

function readTheme() {
  try { return localStorage.getItem("theme") || ""; } catch { return ""; }
}

function showTheme(chosen) {
  const [name, sign, words] = THEMES.find(([one]) => one === chosen) || THEMES[0];
  document.documentElement.dataset.theme = name;
  const button = document.getElementById("theme");
  if (button) {
    button.textContent = sign;
    button.setAttribute("aria-label", `Colours: ${words}`);
  }
}

showTheme(readTheme());

// Times come as UTC and are shown as their distance to now; the moment itself is the title.
function distance(seconds) {
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const [unit, length] = units.find(([, size]) => Math.abs(seconds) >= size) || units[3];
  const count = Math.floor(Math.abs(seconds) / length);
  return seconds >= 0 ? `${count}${unit} ago` : `in ${count}${unit}`;
}

function showAges(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = Date.parse(one.dateTime);
    if (Number.isNaN(at)) continue;
    const text = distance((Date.now() - at) / 1000);
    if (!one.title) one.title = new Date(at).toLocaleString();
    if (one.textContent !== text) one.textContent = text;
  }
}

// One stream of ticks while somebody looks; htmx fetches what changed on each.
let stream = null;

function pulse(text, state) {
  const sign = document.getElementById("pulse");
  if (sign && sign.textContent !== text) sign.textContent = text;
  if (sign) sign.dataset.state = state;
}

function listen() {
  if (stream) return;
  stream = new EventSource("/live");
  stream.addEventListener("open", () => pulse("live", "on"));
  stream.addEventListener("error", () => pulse("reconnecting", "off"));
  stream.addEventListener("tick", () => {
    pulse("live", "on");
    document.body.dispatchEvent(new CustomEvent("tick"));
  });
}

function stopListening() {
  // A browser opens six connections to one server at most: tabs that nobody sees need none.
  if (stream) stream.close();
  stream = null;
}

document.addEventListener("DOMContentLoaded", () => {
  showTheme(readTheme());
  document.getElementById("theme").addEventListener("click", () => {
    const names = THEMES.map(([one]) => one);
    const next = names[(names.indexOf(readTheme()) + 1) % names.length];
    try { localStorage.setItem("theme", next); } catch { /* it lasts for this page */ }
    showTheme(next);
  });
  // On a narrow screen the page that one is on may be out of sight in the row of pages. Not scrollIntoView: the next
  // Tab would start from there.
  const here = document.querySelector("nav [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 24;
  showAges(document);
  setInterval(() => showAges(document), 1000);
  document.addEventListener("visibilitychange", () => (document.hidden ? stopListening() : listen()));
  window.addEventListener("pagehide", stopListening);
  listen();

  // A button that is replaced between press and release was never clicked.
  let isPressed = false;
  const release = () => setTimeout(() => { isPressed = false; });
  for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, () => { isPressed = true; }, true);
  for (const kind of ["pointerup", "pointercancel", "keyup"]) document.addEventListener(kind, release, true);
  window.addEventListener("blur", release);

  // A tick that brings the same text again would only disturb who is selecting.
  let last = "";
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { target, requestConfig, xhr } = event.detail;
    if (target.id !== "live") return;
    const isTick = requestConfig.elt === target;
    if (isTick && (isPressed || xhr.responseText === last)) event.detail.shouldSwap = false;
    else last = xhr.responseText;
  });

  // What somebody has opened stays open.
  let opened = [];
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    opened = [...event.detail.target.querySelectorAll("details[open][id]")].map((one) => one.id);
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    showAges(event.detail.target);
  });
});
