"""The script that highlights linked lines on a static page. It uses no network and no `innerHTML`; it sets classes."""

LINK_SCRIPT = r"""
(function () {
  "use strict";
  for (const root of document.querySelectorAll(".mnb-linked:not([data-live])")) wire(root);

  function wire(root) {
    root.setAttribute("data-live", "");
    const lines = new Map(), blocks = new Map();
    const add = (map, key, element) => { if (!map.has(key)) map.set(key, []); map.get(key).push(element); };
    const words = (element, name) => (element.getAttribute(name) || "").split(" ").filter(Boolean);
    for (const line of root.querySelectorAll("[data-e]"))
      for (const id of words(line, "data-e")) add(lines, id, line);
    for (const part of root.querySelectorAll("[data-block]"))
      for (const name of words(part, "data-block")) add(blocks, name, part);
    const isPinned = (line) => line.classList.contains("pin");
    let pinned = null;

    function counterparts(element) {
      const found = new Set([element]);
      if (element.hasAttribute("data-e")) {
        for (const id of words(element, "data-e")) for (const line of lines.get(id) || []) found.add(line);
        for (const name of words(element, "data-of")) for (const part of blocks.get(name) || []) found.add(part);
      } else {
        for (const name of words(element, "data-block")) {
          for (const part of blocks.get(name) || []) found.add(part);
          for (const line of root.querySelectorAll("[data-of]"))
            if (words(line, "data-of").some((of) => of === name || of.startsWith(name + "/"))) found.add(line);
        }
      }
      return found;
    }
    function mark(look, found) {
      for (const old of root.querySelectorAll("." + look)) old.classList.remove(look);
      for (const element of found) element.classList.add(look);
    }
    function pin(element) {
      pinned = element;
      const found = element ? counterparts(element) : [];
      mark("pin", found);
      const seen = new Set([element && element.closest(".code")]);
      for (const line of found) {
        const pane = line.closest(".code");
        if (!pane || seen.has(pane)) continue;
        seen.add(pane);
        const top = line.getBoundingClientRect().top - pane.getBoundingClientRect().top;
        if (top < 0 || top > pane.clientHeight - 20) pane.scrollTop += top - pane.clientHeight / 4;
      }
    }
    const linked = (event) => event.target.closest && event.target.closest("[data-e],[data-block]");
    root.addEventListener("mouseover", (event) => {
      const element = linked(event);
      mark("on", element ? counterparts(element) : []);
    });
    root.addEventListener("mouseleave", () => mark("on", []));
    root.addEventListener("click", (event) => {
      const element = linked(event);
      if (!element || String(document.getSelection())) return;
      event.preventDefault();
      pin(element === pinned ? null : element);
    });

    for (const anchor of root.querySelectorAll("a.n")) anchor.setAttribute("tabindex", "-1");
    for (const pane of root.querySelectorAll(".code")) {
      let here = null;
      const rows = () => [...pane.querySelectorAll(".l")];
      function go(to) {
        if (!to) return;
        if (here) here.classList.remove("here");
        here = to;
        here.classList.add("here");
        here.scrollIntoView({ block: "nearest" });
        mark("on", counterparts(here));
      }
      pane.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const all = rows(), at = here ? all.indexOf(here) : -1;
        if (event.key === "ArrowDown") go(all[Math.min(at + 1, all.length - 1)]);
        else if (event.key === "ArrowUp") go(all[Math.max(at - 1, 0)]);
        else if (event.key === "Enter" && here && here.hasAttribute("data-e")) pin(here === pinned ? null : here);
        else if (event.key === "Escape") pin(null);
        else if (event.key === "]") go(all.slice(at + 1).find(isPinned));
        else if (event.key === "[") go(all.slice(0, Math.max(at, 0)).reverse().find(isPinned));
        else return;
        event.preventDefault();
      });
    }
    for (const part of root.querySelectorAll("[data-block][tabindex]"))
      part.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        pin(part === pinned ? null : part);
      });
  }
})();
"""
