// Keeps an open page as the management API has it. The server says that something changed; the page then asks for its content
// anew. A page in the background listens to nothing, and asks once when it is looked at again.
"use strict";
(function () {
  const main = document.getElementById("main");
  const banner = document.getElementById("connection");
  const FIRST_RETRY = 1000, LAST_RETRY = 15000, AGES_EVERY = 10000;
  let source = null, retry = FIRST_RETRY, timer = 0, asking = false, again = false, shown = "";

  function say(text) {
    banner.textContent = text;
    banner.hidden = !text;
  }

  function refresh() {
    if (asking) { again = true; return; }
    asking = true;
    htmx.trigger(main, "live");
  }

  function listen() {
    clearTimeout(timer);
    if (source || document.hidden) return;
    source = new EventSource(main.dataset.live);
    source.onopen = function () { retry = FIRST_RETRY; say(""); refresh(); };
    source.addEventListener("changed", function () { say(""); refresh(); });
    source.addEventListener("away", function (event) {
      say("What this page shows may be out of date: " + JSON.parse(event.data).message);
    });
    source.onerror = function () {
      rest();
      say("The connection to the manager is lost. Trying again…");
      timer = setTimeout(listen, retry);
      retry = Math.min(retry * 2, LAST_RETRY);
      refresh();
    };
  }

  function rest() {
    if (source) source.close();
    source = null;
    clearTimeout(timer);
  }

  // Ages grow while nothing changes.
  function age(seconds) {
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
    if (seconds < 120) return Math.max(seconds, 0) + "s";
    if (minutes < 10) return minutes + "m" + (seconds % 60 ? (seconds % 60) + "s" : "");
    if (minutes < 180) return minutes + "m";
    if (hours < 8) return hours + "h" + (minutes % 60 ? (minutes % 60) + "m" : "");
    if (hours < 48) return hours + "h";
    if (days < 8) return days + "d" + (hours % 24 ? (hours % 24) + "h" : "");
    return days + "d";
  }

  function renewAges() {
    if (document.hidden) return;
    document.querySelectorAll("time[datetime]").forEach(function (one) {
      one.textContent = age(Math.floor((Date.now() - Date.parse(one.dateTime)) / 1000));
    });
  }

  // A command that one can copy.
  function addCopyButtons(root) {
    if (!navigator.clipboard) return;
    root.querySelectorAll(".commands li, .command").forEach(function (one) {
      if (one.querySelector("button")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "plain copy";
      button.textContent = "Copy";
      button.addEventListener("click", function () {
        navigator.clipboard.writeText(one.querySelector("code").textContent).then(function () {
          button.textContent = "Copied";
          setTimeout(function () { button.textContent = "Copy"; }, 2000);
        });
      });
      one.append(button);
    });
  }

  addCopyButtons(document);
  if (!main.dataset.live || !window.htmx || !window.EventSource) return;

  let open = [];
  document.body.addEventListener("htmx:configRequest", function (event) {
    if (event.detail.elt === main && shown) event.detail.headers["X-Windrow-Shown"] = shown;
  });
  document.body.addEventListener("htmx:beforeSwap", function (event) {
    if (event.detail.target !== main) return;
    // An error is shown as well: that the cluster is gone, or that it may not be read any more.
    if (event.detail.xhr.status >= 400) event.detail.shouldSwap = event.detail.xhr.status !== 401;
    shown = event.detail.xhr.getResponseHeader("X-Windrow-Shown") || "";
    open = Array.from(main.querySelectorAll("details[id]")).map(function (one) { return [one.id, one.open]; });
  });
  document.body.addEventListener("htmx:afterSwap", function () {
    open.forEach(function (pair) {
      const one = document.getElementById(pair[0]);
      if (one) one.open = pair[1];
    });
    addCopyButtons(main);
  });
  document.body.addEventListener("htmx:afterRequest", function (event) {
    if (event.detail.elt !== main) return;
    asking = false;
    if (again) { again = false; refresh(); }
  });
  document.addEventListener("visibilitychange", function () {
    if (document.hidden) rest(); else listen();
  });
  setInterval(renewAges, AGES_EVERY);
  listen();
})();
