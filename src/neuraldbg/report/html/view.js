"use strict";
// Asks its own server for a fresh page now and then, and exchanges what has changed.
const View = (() => {
  const EVERY = 2000;
  let stamp = null;

  async function look() {
    const body = document.body;
    try {
      const state = await (await fetch(body.dataset.state, { cache: "no-store" })).json();
      if (stamp !== null && state.stamp !== stamp) await exchange();
      stamp = state.stamp;
      say(state.said);
    } catch { say("The server of this page has ended; start `neuraldbg view` again."); }
    setTimeout(look, EVERY);
  }

  async function exchange() {
    const text = await (await fetch(location.href, { cache: "no-store" })).text();
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("report");
    const old = document.getElementById("report");
    const open = Array.from(old.querySelectorAll("details")).map((d) => d.open);
    const chosen = old.querySelector("input.measure:checked");
    const focused = document.activeElement && document.activeElement.id;
    old.replaceWith(document.adoptNode(fresh));
    fresh.querySelectorAll("details").forEach((d, i) => { d.open = open[i] || d.open; });
    const again = chosen && fresh.querySelector(`#${CSS.escape(chosen.id)}`);
    if (again) again.checked = true;
    if (fresh.querySelector("#data")) Report.start(fresh, true);
    if (focused && document.getElementById(focused)) document.getElementById(focused).focus({ preventScroll: true });
  }

  function say(text) {
    const place = document.getElementById("state");
    if (place.textContent !== text) place.textContent = text;
  }

  return { look };
})();
View.look();
