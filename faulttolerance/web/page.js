// Shows the page as it is now, every few seconds, without loading it anew: what did not change is not touched.
// Where scripts are off, the page loads itself anew, and the filter is a form.
"use strict";

(() => {
  const LEAST = 2000; // milliseconds between two looks
  const SOON = 100; // milliseconds until another try where another process of the service has answered
  const TRIES = 10; // so many of those; then that one is shown
  const MORE_TRIES = 50; // so many to reach it with an action, which is nothing to be done anywhere else
  const SHARE = 20; // a look that takes long is followed by a pause that many times as long
  const news = document.getElementById("news");
  const pause = document.getElementById("pause");
  let timer = 0;
  let turn = 0; // the look that counts: a later one makes an earlier one void
  let strangers = 0; // how many answers in a row were of another process than the one that is shown
  let isPaused = false;
  let refusal = ""; // why the last action was not done

  // Make `now` what `next` is, node by node, so that focus, selection and scrolling stay.
  function follow(now, next) {
    if (now.nodeType !== next.nodeType || now.nodeName !== next.nodeName) {
      now.replaceWith(document.importNode(next, true));
      return;
    }
    if (now.nodeType === Node.TEXT_NODE) {
      if (now.data !== next.data) now.data = next.data;
      return;
    }
    if (now === document.activeElement && now.nodeName === "INPUT") return; // somebody is typing
    for (const { name, value } of next.attributes) {
      if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    for (const { name } of [...now.attributes]) {
      const isReaders = now.nodeName === "DETAILS" && name === "open"; // who opened it wants it open
      if (!next.hasAttribute(name) && !isReaders) now.removeAttribute(name);
    }
    const theirs = [...next.childNodes];
    for (const [index, child] of [...now.childNodes].entries()) {
      if (index < theirs.length) follow(child, theirs[index]);
      else child.remove();
    }
    for (const child of theirs.slice(now.childNodes.length)) now.append(document.importNode(child, true));
  }

  function say(words) {
    words ||= refusal;
    if (news.textContent !== words) news.textContent = words;
  }

  function heading(page, answer) {
    return page.querySelector("h1")?.textContent || answer.status;
  }

  function later(milliseconds) {
    clearTimeout(timer);
    const isLive = document.querySelector("main").hasAttribute("data-live"); // what is not there does not change
    pause.hidden = !isLive;
    if (isLive && !isPaused && !document.hidden) timer = setTimeout(look, milliseconds);
  }

  async function look() {
    clearTimeout(timer);
    const mine = ++turn;
    const began = performance.now();
    let trouble = "The process does not answer";
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      const text = await answer.text();
      if (mine !== turn) return;
      const next = new DOMParser().parseFromString(text, "text/html");
      const main = next.querySelector("main[data-live]");
      if (!main) {
        trouble = `The answer is ${heading(next, answer)}`;
        throw new Error(trouble);
      }
      const process = document.querySelector("main").dataset.process;
      if (main.dataset.process && main.dataset.process !== process && ++strangers <= TRIES) {
        later(SOON);
        return;
      }
      strangers = 0;
      follow(document.querySelector("main"), main);
      follow(document.querySelector("footer"), next.querySelector("footer"));
      say("");
    } catch {
      if (mine === turn) say(`${trouble}; the page may be old.`);
    }
    if (mine === turn) later(Math.max(LEAST, SHARE * (performance.now() - began)));
  }

  // The filter asks while somebody types. The form that goes with the page may be replaced, so the document listens.
  let typing = 0;
  function filter() {
    const form = document.getElementById("filter");
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    const limit = new URLSearchParams(location.search).get("limit");
    if (limit !== null) query.set("limit", limit);
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    look();
  }
  document.addEventListener("input", (event) => {
    if (!event.target.closest("#filter")) return;
    clearTimeout(typing);
    typing = setTimeout(filter, 150);
  });

  // Without this an action is a form as any other; with it, it reaches the process that is shown, whoever answers.
  async function act(form) {
    const fields = { method: "POST", body: new URLSearchParams(new FormData(form)), redirect: "manual" };
    let answer;
    try {
      for (let tries = 0; tries < MORE_TRIES; ++tries) {
        answer = await fetch(form.action, { ...fields, headers: { Accept: "text/html" } });
        if (answer.status !== 409) break;
      }
      const isDone = answer.type === "opaqueredirect"; // it would lead back to where this is
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      refusal = isDone ? "" : `Not done. ${heading(page, answer)}`;
    } catch {
      refusal = "The process does not answer; it may have been done.";
    }
    say("");
    look();
  }
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    event.preventDefault();
    act(event.target);
  });

  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Go on" : "Pause";
    if (isPaused) {
      turn += 1;
      clearTimeout(timer);
    } else look();
  });
  document.addEventListener("visibilitychange", () => later(0));
  document.documentElement.classList.add("live");
  later(LEAST);
})();
