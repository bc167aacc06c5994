// The page of a program at every stage. Its compressed data are in the same file; nothing is loaded over the network.
(async function () {
  "use strict";
  const ROW = 18, MOST = 2000, LOOKS = { op: "f", meta: "k", type: "t", number: "m", string: "s", comment: "c" };
  const page = document.querySelector(".mnb-page"), packed = document.getElementById("mnb-data");
  if (!window.DecompressionStream) return; // without it, the static version of the page stays
  const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = JSON.parse(await new Response(unpacked).text());
  packed.remove();

  const element = (tag, look, text) => {
    const node = document.createElement(tag);
    if (look) node.className = look;
    if (text) node.textContent = text;
    return node;
  };
  const button = (text, act) => {
    const node = element("button", "", text);
    node.type = "button";
    node.addEventListener("click", act);
    return node;
  };

  // Links between lines, boxes and rows

  const numberOf = new Map(data.equations.map((id, at) => [id, at]));
  const groupsOf = data.equations.map(() => []);
  data.groups.forEach((group, at) => { for (const equation of group) groupsOf[equation].push(at); });

  // A link holds the groups of equations, the looks, and the parts of pictures and tables to highlight.
  function linkTo(equations, blocks, isBlock) {
    const groups = new Uint8Array(data.groups.length), looks = new Uint8Array(data.looks.length);
    for (const equation of equations) for (const group of groupsOf[equation]) groups[group] = 1;
    if (isBlock)
      data.looks.forEach((look, at) => {
        if (look.shares.some(([path]) => blocks.some((block) => isIn(data.keys[path], block)))) looks[at] = 1;
      });
    const lights = new Uint8Array(data.equations.length);
    for (const equation of equations) lights[equation] = 1;
    return { lights, blocks, groups, looks };
  }
  const isIn = (path, block) => path === block || path.startsWith(block + "/");
  const numbers = (text) => text.split(" ").map((id) => numberOf.get(id)).filter((at) => at !== undefined);
  function linkOfPart(part) {
    if (part.dataset.e) return linkTo(numbers(part.dataset.e), part.dataset.of ? [part.dataset.of] : [], false);
    return part.dataset.block ? linkTo([], [part.dataset.block], true) : null;
  }
  function linkOfLine(stage, line) {
    const at = stage.owner[line];
    if (at < 0) return null;
    const look = data.looks[stage.look[at]];
    return linkTo(data.groups[stage.group[at]], look.shares.map(([path]) => data.keys[path]), false);
  }
  // Boxes of the picture and rows of the table; for an open box, the boxes inside are highlighted.
  let parts = [];
  function gather() {
    const found = [...page.querySelectorAll("[data-block],[data-e]")];
    parts = found.filter((part) => part.getAttribute("aria-expanded") !== "true").map((part) => (
      { part, equations: part.dataset.e ? numbers(part.dataset.e) : null, block: part.dataset.block }));
  }
  const isLinked = ({ equations, block }, link) =>
    equations ? equations.some((at) => link.lights[at]) : link.blocks.some((one) => isIn(one, block));
  let hovered = null, pinned = null, pinnedAt = "";
  function mark(look, link) {
    for (const one of parts) one.part.classList.toggle(look, !!link && isLinked(one, link));
    for (const pane of panes.values()) pane.paint();
  }
  const light = (link) => { hovered = link; mark("on", hovered); };
  function pin(link, at, from) {
    pinned = link === null || at === pinnedAt ? null : link;
    pinnedAt = pinned ? at : "";
    mark("pin", pinned);
    for (const pane of panes.values()) pane.follow(pane === from);
  }

  // Syntax colours, as in highlight.py

  function rulesOf(language) {
    return (data.tokens.languages[language] || []).map(([pattern, name, close]) => (
      { pattern: new RegExp(pattern, "y"), name, close: close ? new RegExp(close, "g") : null }));
  }
  function split(rules, line, open) {
    const found = [], end = rules.length ? Math.min(line.length, data.tokens.longest) : 0, text = line.slice(0, end);
    let at = 0;
    while (at < end) {
      const start = at;
      let name = "";
      if (!open) {
        const rule = rules.find((one) => {
          one.pattern.lastIndex = start;
          const match = one.pattern.exec(text);
          if (match && match[0]) at = start + match[0].length;
          return match && match[0];
        });
        if (!rule) at += 1;
        else { name = rule.name || ""; open = rule.close ? rule : null; }
      }
      if (open) {
        open.close.lastIndex = at;
        const closed = open.close.exec(text);
        at = closed ? closed.index + closed[0].length : end;
        name = open.name || "";
        if (closed) open = null;
      }
      found.push([LOOKS[name] || "", text.slice(start, at)]);
    }
    if (end < line.length) found.push(["", line.slice(end)]);
    return [found, open];
  }

  // Panes draw only their visible lines

  function read(raw) {
    const lines = raw.text.replace(/\n$/, "").split("\n"), owner = new Int32Array(lines.length).fill(-1);
    let line = 0;
    raw.line.forEach((step, at) => {
      line += step;
      for (let one = line; one < Math.min(line + raw.span[at], lines.length + 1); one++) owner[one - 1] = at;
    });
    return { ...raw, lines, owner };
  }
  function describe(stage, at) {
    const look = data.looks[stage.look[at]], ids = data.groups[stage.group[at]], opcode = data.opcodes[stage.opcode[at]];
    const blocks = look.shares.slice(0, 6).map(([path, share]) =>
      data.paths[path] + (look.shares.length > 1 ? ` ${(share * 100).toFixed(1)} %` : ""));
    const parts = [blocks.join(", ") || "unattributed", opcode, look.role, data.origins[look.origin]];
    const named = ids.slice(0, 8).map((id) => data.equations[id]).join(", ") + (ids.length > 8 ? ", …" : "");
    if (ids.length) parts.push(`equation${ids.length > 1 ? "s" : ""} ${named}`);
    const inside = look.transforms.length ? `inside ${look.transforms.join(", ")}` : "";
    const help = (data.help[stage.name] || {})[opcode] || "";
    return [parts.filter(Boolean).join(" · "), help, inside, look.source.join(", "), look.library.join(", ")].filter(Boolean).join("\n");
  }

  class Pane {
    constructor(stage, language) {
      this.stage = stage;
      this.rules = rulesOf(language);
      this.opens = this.rules.some((rule) => rule.close) ? [null] : null;
      this.here = -1;
      this.wide = Math.min(MOST, stage.lines.reduce((most, line) => Math.max(most, line.length), 0));
      this.root = element("section", "pane");
      this.root.setAttribute("aria-label", stage.title);
      this.root.dataset.stage = stage.name;
      const head = element("header");
      head.append(element("b", "", stage.title), element("span", "quiet", stage.text ? `${stage.lines.length.toLocaleString("en")} lines` : ""));
      this.code = element("div", "code v");
      this.code.tabIndex = 0;
      this.code.setAttribute("role", "region");
      this.code.setAttribute("aria-label", `${stage.title}, text`);
      this.tall = element("div", "tall");
      this.tall.style.height = `${stage.lines.length * ROW}px`;
      this.tall.style.minWidth = `calc(${this.wide + String(stage.lines.length).length}ch + 48px)`;
      this.visible = element("div", "sight");
      this.visible.style.setProperty("--w", String(stage.lines.length).length);
      this.ticks = element("div", "ticks");
      this.tall.append(this.visible);
      this.code.append(this.tall);
      this.root.append(head);
      if (stage.unavailable) this.root.append(element("p", "gone", `not available: ${stage.unavailable}`));
      if (stage.text) this.root.append(this.code, this.ticks);
      this.code.addEventListener("scroll", () => this.draw());
      new ResizeObserver(() => this.draw()).observe(this.code);
      const rowOf = (event) => event.target.closest(".l");
      this.code.addEventListener("mouseover", (event) => {
        const row = rowOf(event), line = row ? Number(row.dataset.line) : -1;
        if (line !== this.over) { this.over = line; light(line < 0 ? null : linkOfLine(stage, line)); }
      });
      this.code.addEventListener("mouseleave", () => { this.over = -1; light(null); });
      this.code.addEventListener("click", (event) => {
        const row = rowOf(event);
        if (!row || String(document.getSelection())) return;
        this.go(Number(row.dataset.line));
        this.pinHere();
      });
      this.code.addEventListener("keydown", (event) => this.key(event));
    }
    pinHere() { pin(linkOfLine(this.stage, this.here), `${this.stage.name}:${this.here}`, this); }
    is(link, line) {
      const at = this.stage.owner[line];
      return !!link && at >= 0 && !!(link.groups[this.stage.group[at]] || link.looks[this.stage.look[at]]);
    }
    draw() {
      const first = Math.max(0, Math.floor(this.code.scrollTop / ROW) - 8);
      const last = Math.min(this.stage.lines.length, first + Math.ceil(this.code.clientHeight / ROW) + 16);
      this.visible.style.transform = `translateY(${first * ROW}px)`;
      this.rows = [];
      for (let line = first; line < last; line++) this.rows.push(this.row(line));
      this.visible.replaceChildren(...this.rows);
      this.paint();
    }
    row(line) {
      const { stage } = this, row = element("div", "l"), at = stage.owner[line], stripe = element("span", "s");
      row.dataset.line = line;
      if (at >= 0) {
        const look = data.looks[stage.look[at]], bars = element("span");
        row.title = describe(stage, at);
        stripe.className = `s${{ inferred: " i", kernel: " k" }[look.origin] || ""}${{ backward: " rb", update: " ru" }[look.role] || ""}`;
        for (const [path, share, hue] of look.shares) {
          const bar = element("i", hue);
          bar.style.flexGrow = share;
          bars.append(bar);
        }
        stripe.append(bars);
      }
      const code = element("span", "x"), whole = stage.lines[line];
      for (const [look, text] of this.pieces(line, whole.slice(0, MOST))) code.append(look ? element("span", look, text) : text);
      if (whole.length > MOST) code.append(element("span", "c", ` … ${whole.length - MOST} more characters`));
      row.append(element("span", "n", String(line + 1)), stripe, code);
      return row;
    }
    pieces(line, text) {
      if (!this.opens) return split(this.rules, text, null)[0];
      while (this.opens.length <= line)
        this.opens.push(split(this.rules, this.stage.lines[this.opens.length - 1], this.opens[this.opens.length - 1])[1]);
      return split(this.rules, text, this.opens[line])[0];
    }
    paint() {
      for (const row of this.rows || []) {
        const line = Number(row.dataset.line);
        row.classList.toggle("on", this.is(hovered, line));
        row.classList.toggle("pin", this.is(pinned, line));
        row.classList.toggle("here", line === this.here);
      }
    }
    // Scroll to the nearest pinned line if none is visible, and mark their positions.
    follow(isSource) {
      const { lines } = this.stage, found = [];
      if (pinned) for (let line = 0; line < lines.length; line++) if (this.is(pinned, line)) found.push(line);
      const places = [...new Set(found.map((line) => Math.round((line / lines.length) * 200)))];
      this.ticks.replaceChildren(...places.map((place) => {
        const tick = element("i");
        tick.style.top = `${place / 2}%`;
        return tick;
      }));
      const top = this.code.scrollTop / ROW, end = top + this.code.clientHeight / ROW - 1;
      if (!isSource && found.length && !found.some((line) => line >= top && line < end)) {
        const near = found.reduce((best, line) => (Math.abs(line - top) < Math.abs(best - top) ? line : best));
        this.code.scrollTop = (near * ROW) - this.code.clientHeight / 4;
      }
    }
    go(line) {
      if (line < 0 || line >= this.stage.lines.length) return;
      this.here = line;
      const top = line * ROW, { scrollTop, clientHeight } = this.code;
      if (top < scrollTop) this.code.scrollTop = top;
      else if (top > scrollTop + clientHeight - 2 * ROW) this.code.scrollTop = top - clientHeight + 2 * ROW;
      light(linkOfLine(this.stage, line));
    }
    next(step) {
      let line = this.here + step;
      while (line >= 0 && line < this.stage.lines.length && !this.is(pinned, line)) line += step;
      this.go(line);
    }
    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const most = this.stage.lines.length - 1;
      if (event.key === "ArrowDown") this.go(Math.min(this.here + 1, most));
      else if (event.key === "ArrowUp") this.go(Math.max(this.here - 1, 0));
      else if (event.key === "Enter" && this.here >= 0) this.pinHere();
      else if (event.key === "Escape") pin(null, "", this);
      else if (event.key === "]") this.next(1);
      else if (event.key === "[") this.next(-1);
      else return;
      event.preventDefault();
    }
  }

  const panes = new Map();
  const stages = data.stages.map(read), bar = element("div", "bar-of-stages"), shelf = element("div", "panes");
  function show(stage, tab, isShown) {
    tab.setAttribute("aria-pressed", String(isShown));
    if (isShown && !panes.has(stage.name)) panes.set(stage.name, new Pane(stage, stage.language));
    if (!isShown) panes.delete(stage.name);
    shelf.replaceChildren(...stages.filter(({ name }) => panes.has(name)).map(({ name }) => panes.get(name).root));
    for (const pane of panes.values()) { pane.draw(); pane.follow(true); }
  }
  for (const stage of stages) {
    const tab = button(stage.title, () => show(stage, tab, tab.getAttribute("aria-pressed") !== "true"));
    bar.append(tab);
    show(stage, tab, data.shown.includes(stage.name));
  }
  const live = page.querySelector(".live");
  live.replaceChildren(bar, shelf);
  live.hidden = false;
  page.querySelector(".plain").remove();
  gather();

  // The picture: a click opens the next level

  const frame = page.querySelector(".picture");
  function draw(key) {
    const parsed = new DOMParser().parseFromString(data.pictures[key], "image/svg+xml");
    frame.replaceChildren(document.importNode(parsed.documentElement, true));
    gather();
    mark("pin", pinned);
  }
  function press(part) {
    const link = linkOfPart(part), key = part.dataset.node;
    const goal = part.getAttribute("aria-expanded") === "true" ? data.parents[key] : key;
    if (part.hasAttribute("aria-expanded") && goal in data.pictures) {
      pin(null, "", null);
      if (goal === key && link) pin(link, `node:${key}`, null);
      draw(goal);
      const reopened = [...frame.querySelectorAll("[data-node]")].find((one) => one.dataset.node === key);
      if (reopened) reopened.focus({ preventScroll: true });
    } else if (link) pin(link, `part:${key || part.dataset.block}`, null);
  }
  const partOf = (event) => event.target.closest && event.target.closest("[data-block],[data-e]");
  page.addEventListener("mouseover", (event) => {
    if (event.target.closest(".code")) return;
    const part = partOf(event);
    if (part || hovered) light(part ? linkOfPart(part) : null);
  });
  page.addEventListener("click", (event) => {
    const part = event.target.closest("[data-node],[data-block]");
    if (part && !event.target.closest(".code") && !String(document.getSelection())) press(part);
  });
  page.addEventListener("keydown", (event) => {
    const part = event.target.closest("[data-node],tr[data-block]");
    if (!part || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    press(part);
  });
  if (frame) {
    const tools = element("div", "tools");
    tools.append(button("Reset view", () => draw("@first")), button("Close all", () => draw("")));
    tools.append(element("span", "quiet", "Click a block to open it and pin its lines"));
    frame.before(tools);
  }

  // The passes: a list, and the diff of the selected pass

  const list = page.querySelector(".passes");
  if (list && data.passes.length) {
    const side = element("div", "difference"), rows = [...list.querySelectorAll("li")];
    list.after(side);
    const choose = (at) => {
      rows.forEach((row, one) => row.classList.toggle("pin", one === at));
      const lines = (data.passes[at] || "only names or layouts changed\n").replace(/\n$/, "").split("\n");
      const title = rows[at].querySelector("b").textContent;
      const stage = { name: "pass", title, lines, owner: new Int32Array(lines.length).fill(-1) };
      const pane = new Pane(stage, "hlo");
      const plain = pane.row.bind(pane);
      pane.row = (line) => {
        const row = plain(line);
        row.classList.add({ "+": "plus", "-": "minus", "@": "where" }[lines[line][0]] || "same");
        return row;
      };
      side.replaceChildren(pane.root);
      pane.draw();
    };
    rows.forEach((row, at) => {
      row.tabIndex = 0;
      row.setAttribute("role", "button");
      row.addEventListener("click", () => choose(at));
      row.addEventListener("keydown", (event) => {
        const to = { ArrowDown: at + 1, ArrowUp: at - 1, Enter: at }[event.key];
        if (to === undefined || !rows[to]) return;
        event.preventDefault();
        rows[to].focus();
        choose(to);
      });
    });
    choose(0);
  }
  page.dataset.ready = "";
})();
