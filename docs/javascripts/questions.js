// Questions of the lessons on a page without a kernel: the answers are in the page, and the first answer counts.
(() => {
  const ANSWER = "\ue000";
  const DTYPES = { f: "float", s: "int", i: "int", u: "uint", c: "complex", bf: "bfloat" };
  const TOLERANCE = 0.01; // as in mithril_nb.teach.answers
  const ROUNDING = 1e-9;

  /** Return the value of a formula of numbers and letters with + - * / // ** and brackets, or null. */
  function arithmetic(text, letters = {}) {
    const tokens = text.match(/0x[\da-f]+|\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|\*\*|\/\/|[-+*/()]|[a-z_]\w*|\S/gi) ?? [];
    let at = 0;
    const take = (...names) => (names.includes(tokens[at]) ? tokens[at++] : null);
    const power = () => {
      const left = atom();
      if (!take("**")) return left;
      const right = unary();
      return Math.abs(right) > 64 || Math.abs(left) > 1e9 ? NaN : left ** right; // as in Python
    };
    const unary = () => (take("-") ? -unary() : power());
    const product = () => {
      let value = unary();
      for (let sign; (sign = take("*", "/", "//")); ) {
        const other = unary();
        value = sign === "*" ? value * other : sign === "/" ? value / other : Math.floor(value / other);
      }
      return value;
    };
    const sum = () => {
      let value = product();
      for (let sign; (sign = take("+", "-")); ) value += sign === "+" ? product() : -product();
      return value;
    };
    const atom = () => {
      if (take("(")) {
        const value = sum();
        return take(")") ? value : NaN;
      }
      if (Object.hasOwn(letters, tokens[at])) return letters[tokens[at++]];
      // As in Python, an integer has no leading zeros.
      return /^(?!0+[1-9]\d*$)[\d.]/.test(tokens[at] ?? "") ? Number(tokens[at++]) : NaN;
    };
    const value = sum();
    return at === tokens.length && Number.isFinite(value) ? value : null;
  }

  function numberOf(text, unit) {
    let amount = text.trim().replaceAll("×", "*").replaceAll("_", "");
    amount = amount.replace(/(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])/g, (digits) => digits.replaceAll(",", ""));
    for (const name of unit === "B" ? ["bytes", "Bs", "B"] : unit ? [`${unit}s`, unit] : [])
      if (amount.endsWith(name)) {
        amount = amount.slice(0, -name.length).trim();
        break;
      }
    const [, digits, prefix, binary] = /^((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([kmgtp])(i?)$/i.exec(amount) ?? [];
    if (!prefix) return arithmetic(amount);
    const value = digits * (binary ? 1024 : 1000) ** " kmgtp".indexOf(prefix.toLowerCase());
    return Number.isFinite(value) ? value : null;
  }

  function specOf(text, dtypes) {
    const [, name, dims] = /^\s*([a-z]+\d*)\[((?:\s*\d+\s*,)*(?:\s*\d+)?\s*)\]\s*$/.exec(text) ?? [];
    if (!name) return null;
    const [, letters, bits] = /^([a-z]+?)(\d*)$/.exec(name);
    const dtype = name === "pred" ? "bool" : bits ? `${DTYPES[letters] ?? letters}${bits}` : letters;
    const sizes = (dims.match(/\d+/g) ?? []).map(Number);
    return dtypes.includes(dtype) ? `${dtype}[${sizes.join(", ")}]` : null;
  }

  /** Return the answer as Python writes it and whether it is right; null if it does not have the form. */
  function read(form, data) {
    const text = form.querySelector("input[type=text]")?.value.trim().replace(/^(['"])(.*)\1$/, "$2");
    if (data.form === "number") {
      const value = numberOf(text, data.unit);
      if (value === null) return null;
      const near = (truth) => (data.unit ? Math.abs(value - truth) <= TOLERANCE * Math.abs(truth) : value === truth);
      const wrong = Object.keys(data.near).find((other) => near(numberOf(other, data.unit)));
      return { answer: `${value.toLocaleString("en")} ${data.unit}`.trim(), right: near(data.number), wrong };
    }
    if (data.form === "formula") {
      const answer = text.replace(/[×·]/g, "*");
      const values = (other) => data.points.map((letters) => arithmetic(other, letters));
      if (values(answer).includes(null)) return null;
      const same = (other) => {
        const wanted = values(other);
        return values(answer).every((value, at) => Math.abs(value - wanted[at]) <= ROUNDING * Math.abs(wanted[at]));
      };
      return { answer, right: same(data.truth), wrong: Object.keys(data.near).find(same) };
    }
    if (data.form === "several") {
      const boxes = [...form.querySelectorAll("[type=checkbox]")];
      const answer = boxes.flatMap((box, index) => (box.checked ? [index + 1] : [])).join(", ");
      return answer && { answer, right: answer === data.truth, wrong: answer };
    }
    const values = [...form.querySelectorAll("fieldset")].map((set) => set.querySelector(":checked")?.value);
    const chosen = [...form.querySelectorAll("select")].map((select) => select.value);
    if (values.includes(undefined) || new Set(chosen).size < chosen.length || chosen.includes("")) return null;
    const answer = text === undefined ? values.join(", ") || chosen.join(" < ") : specOf(text, data.dtypes);
    return answer && { answer, right: answer === data.truth, wrong: answer };
  }

  let right = 0;
  let answered = 0;
  document.querySelectorAll("form.mnb-predict").forEach((form, number) => {
    const output = form.nextElementSibling;
    const data = JSON.parse(output.nextElementSibling.textContent);
    for (const radio of form.querySelectorAll("[type=radio]")) radio.name = `${number}-${radio.name}`;
    form.hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const result = read(form, data);
      if (!result) {
        output.textContent = `Answer with ${data.hint}.`;
        return;
      }
      answered += 1;
      right += result.right;
      output.innerHTML = result.right ? data.right : (data.near[result.wrong] ?? data.wrong);
      const texts = document.createTreeWalker(output, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(ANSWER, result.answer);
      for (const field of form.elements) field.disabled = true;
      for (const score of document.querySelectorAll(".mnb-score"))
        score.textContent = `${right} of ${answered} questions right at the first answer`;
    });
  });
})();

// Outputs and code that scroll sideways are reached by keyboard.
for (const box of document.querySelectorAll(".mnb-cell-output, .mnb-cell-output .scroll, .md-typeset pre > code"))
  if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
