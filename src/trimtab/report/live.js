(() => {
  "use strict";
  const KEY = "trimtab-token";
  const at = (id) => document.getElementById(id);
  let latest = null; // the last message
  let heardMs = 0; // when it came, by this page's own clock
  let listening = null; // what ends the stream that is open
  let busy = false;

  // ---- markup: text only ----------------------------------------------------------------------

  const make = (name, text, attributes = {}) => {
    const found = document.createElement(name);
    if (text !== null && text !== undefined) found.textContent = String(text);
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    return found;
  };
  const draw = (name, attributes, text) => {
    const found = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    if (text !== undefined) found.textContent = text;
    return found;
  };
  const row = (...cells) => { const found = make("tr"); found.append(...cells); return found; };
  const head = (...names) => {
    const found = make("thead");
    found.append(row(...names.map((name) => make("th", name, { scope: "col" }))));
    return found;
  };
  const show = (element, text) => { element.textContent = text || ""; element.hidden = !text; };

  // ---- words ----------------------------------------------------------------------------------

  const value = (one) => one === undefined || one === null ? "—" : Array.isArray(one) ? one.join("/") : String(one);
  const setting = (knobs) => knobs ? Object.entries(knobs).map(([name, one]) => `${name}=${value(one)}`).join(", ") : "";
  const span = (seconds) => {
    if (seconds === null || seconds === undefined) return "—";
    if (seconds < 90) return `${Math.round(seconds)} s`;
    const minutes = Math.floor(seconds / 60);
    return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  };
  const gain = (one) => one === null || one === undefined ? "" : one.toFixed(3);
  const clock = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });

  const range = (all, digits) => {
    const [low, high] = [Math.min(...all).toFixed(digits), Math.max(...all).toFixed(digits)];
    return low === high ? low : `${low} to ${high}`;
  };

  // Pictures are as wide as there is room for, so that their letters stay as large as others.
  const width = () => Math.min(760, Math.max(280, document.documentElement.clientWidth - 32));

  // ---- the parts ------------------------------------------------------------------------------

  const headline = (status) => {
    if (status.breaker) return "Circuit breaker open: nothing is changed";
    if (status.paused) return "Paused: nothing is changed";
    if (status.change) return `A ${status.change.purpose} is under way`;
    if (status.proposal) return "A change is proposed";
    return `Mode ${status.mode}: nothing to do`;
  };

  const drawWarnings = (status) => {
    const said = [status.breaker, status.paused, ...Object.entries(status.trouble).map(([of, why]) => `${of}: ${why}`)];
    if (status.torn) said.push("only a part of a change is in force");
    if (status.rollback) said.push(`a rollback waits: ${status.rollback.reason}`);
    if (status.settings.refused) said.push(`settings were refused: ${status.settings.refused}`);
    at("warnings").replaceChildren(...said.filter(Boolean).map((one) => make("p", one, { class: "warn" })));
  };

  const drawFacts = (status) => {
    const round = status.last_round;
    const facts = {
      mode: status.mode,
      "in force for": span(status.in_force_for_s),
      "jobs known": status.jobs_known,
      "events taken": status.events,
      "last round": round ? `${round.decision}: ${round.reason}` : "none yet",
      settings: status.settings.digest,
    };
    at("facts").replaceChildren(...Object.entries(facts).map(([name, one]) => {
      const found = make("div");
      found.append(make("dt", name), make("dd", one));
      return found;
    }));
  };

  const drawSetting = (status) => {
    const proposed = status.proposal?.knobs;
    const shown = [["in force", status.in_force], ["written", status.written], ["desired", status.desired]];
    if (proposed) shown.push(["proposed", proposed]);
    const names = [...new Set(shown.flatMap(([, knobs]) => Object.keys(knobs || {})))];
    const body = make("tbody");
    for (const name of names) {
      const now = value(status.in_force?.[name]);
      const cells = shown.map(([, knobs]) => {
        const one = value(knobs?.[name]);
        return make("td", one, one === now ? {} : { class: "moved" });
      });
      body.append(row(make("th", name, { scope: "row" }), ...cells));
    }
    at("setting").replaceChildren(head("knob", ...shown.map(([name]) => name)), body);
  };

  const drawProposal = (status) => {
    const found = status.proposal;
    at("proposal").hidden = !found;
    if (!found) return;
    const predicted = found.gain === null ? "not known" : gain(found.gain);
    at("proposal").replaceChildren(
      make("h3", setting(found.knobs)),
      make("p", `Predicted gain ${predicted}. Why: ${found.reason}.`),
      make("p", `Proposed ${span(found.proposed_for_s)} ago as ${found.key}.`, { class: "lead" }),
    );
  };

  const drawDecisions = (decisions) => {
    const body = make("tbody");
    for (const one of decisions) {
      const when = make("td");
      when.append(make("time", clock(one.wall_ms), { datetime: new Date(one.wall_ms).toISOString() }));
      body.append(row(
        when, make("td", one.what), make("td", one.reason), make("td", setting(one.knobs), { class: "mono" }),
        make("td", one.gain === null ? "" : `gain ${gain(one.gain)}`, { class: "brief" }),
      ));
    }
    at("decisions").replaceChildren(head("when", "what", "why", "setting", "predicted"), body);
  };

  // Gains on a logarithmic axis: twice as good and half as good are equally far from 1.
  const drawGains = (scored) => {
    const known = scored.filter((one) => one.predicted > 0 && one.realised > 0).reverse();
    if (!known.length) {
      at("gains").replaceChildren(make("p", "Nothing has been scored yet."));
      return;
    }
    const logs = known.flatMap((one) => [Math.log2(one.predicted), Math.log2(one.realised)]);
    const low = Math.min(-0.2, ...logs), high = Math.max(0.2, ...logs);
    const y = (one) => 16 + (high - Math.log2(one)) / (high - low) * 188;
    const wide = width(), x = (index) => 64 + (index + 0.5) * (wide - 80) / known.length;
    const plot = draw("svg", { viewBox: `0 0 ${wide} 220`, role: "img", "aria-label": "Predicted and realised gains" });
    for (const [level, kind] of [[2 ** high, "axis"], [1, "even"], [2 ** low, "axis"]])
      plot.append(
        draw("line", { x1: 58, x2: wide - 8, y1: y(level), y2: y(level), class: kind }),
        draw("text", { x: 50, y: y(level) + 4, "text-anchor": "end" }, level.toFixed(2)),
      );
    known.forEach((one, index) => {
      const said = `${clock(one.wall_ms)}: predicted ${gain(one.predicted)}, came ${gain(one.realised)}` +
        (one.made ? "" : ", not made");
      const mark = draw("g", {});
      mark.append(
        draw("title", {}, said),
        draw("line", { x1: x(index), x2: x(index), y1: y(one.predicted), y2: y(one.realised), class: "between" }),
        draw("circle", { cx: x(index), cy: y(one.predicted), r: 5, class: "predicted" }),
        draw("circle", { cx: x(index), cy: y(one.realised), r: 4, class: "realised" }),
      );
      plot.append(mark);
    });
    const legend = make("p", null, { class: "legend" });
    legend.append(make("span", null, { class: "swatch" }), "predicted gain ", make("span", null, { class: "swatch came" }),
      "on what came, the latest on the right");
    const last = known[known.length - 1];
    const words = make("p", `Last: predicted ${gain(last.predicted)}, came ${gain(last.realised)}` +
      `${last.made ? "" : " (it was not made)"}. A predicted gain of 1.1 is taken for ${gain(latest.status.gains["believed_of_1.1"])}.`);
    at("gains").replaceChildren(words, plot, legend);
  };

  // One picture for each measure: expected from least to most, and what came, the latest on the right.
  const drawExpected = (known, name, title, digits) => {
    const most = Math.max(1, ...known.flatMap((one) => [...one[name], one.came ? one.came[name] : 0]));
    const y = (one) => 150 - one / most * 134;
    const wide = width(), x = (index) => 64 + (index + 0.5) * (wide - 80) / known.length;
    const plot = draw("svg", { viewBox: `0 0 ${wide} 160`, role: "img", "aria-label": `${title}: expected and came` });
    for (const level of [0, most / 2, most])
      plot.append(
        draw("line", { x1: 58, x2: wide - 8, y1: y(level), y2: y(level), class: "axis" }),
        draw("text", { x: 50, y: y(level) + 4, "text-anchor": "end" }, level.toFixed(level < 10 && level ? 1 : 0)),
      );
    known.forEach((one, index) => {
      const low = Math.min(...one[name]), high = Math.max(...one[name]), mark = draw("g", {});
      const came = one.came ? one.came[name].toFixed(digits) : "not over yet";
      mark.append(
        draw("title", {}, `${clock(one.wall_ms)}: expected ${range(one[name], digits)}, came ${came}`),
        draw("rect", { x: x(index) - 4, y: y(high) - 2, width: 8, height: y(low) - y(high) + 4, rx: 2, class: "expected" }),
      );
      if (one.came) mark.append(draw("circle", { cx: x(index), cy: y(one.came[name]), r: 4, class: "realised" }));
      plot.append(mark);
    });
    return [make("h3", title), plot];
  };

  const drawForecasts = (forecasts) => {
    const known = [...forecasts].reverse();
    if (!known.length) {
      at("forecasts").replaceChildren(make("p", "Nothing has been forecast yet."));
      return;
    }
    const over = forecasts.find((one) => one.came);
    const words = over
      ? `Last hour that is over: ${range(over.jobs, 0)} jobs were expected and ${over.came.jobs} came; ` +
        `${range(over.gpu_h, 1)} GPU hours were expected, ${over.came.gpu_h.toFixed(1)} have been run` +
        `${over.came.left ? `, and ${over.came.left} of the jobs have not ended` : ""}.`
      : "No hour that was forecast is over yet.";
    const legend = make("p", null, { class: "legend" });
    legend.append(make("span", null, { class: "swatch bar" }), "expected ", make("span", null, { class: "swatch came" }),
      "came, the latest on the right");
    at("forecasts").replaceChildren(make("p", words), ...drawExpected(known, "jobs", "Jobs submitted in the hour", 0),
      ...drawExpected(known, "gpu_h", "GPU hours they ask for", 1), legend);
  };

  const drawButtons = () => {
    const status = latest?.status, may = latest?.scope === "write" && !busy && !stale();
    const can = {
      approve: Boolean(status?.proposal),
      rollback: Boolean(status?.before) && !status?.change,
      pause: !status?.paused,
      resume: Boolean(status?.paused || status?.breaker),
    };
    for (const button of document.querySelectorAll("[data-act]")) button.disabled = !(may && can[button.dataset.act]);
    if (latest?.scope === "read") at("said").textContent = "This token may only read.";
  };

  const drawAll = (message) => {
    latest = message;
    heardMs = performance.now();
    at("ask").hidden = true;
    at("data").hidden = at("facts").hidden = false;
    at("headline").textContent = headline(message.status);
    document.title = `${headline(message.status)} · Trimtab`;
    drawWarnings(message.status);
    drawFacts(message.status);
    drawSetting(message.status);
    drawProposal(message.status);
    drawDecisions(message.decisions);
    drawForecasts(message.forecasts);
    drawGains(message.scored);
    tell();
  };

  // ---- how old it is --------------------------------------------------------------------------

  const age = () => latest.age_s + (performance.now() - heardMs) / 1000;
  const stale = () => latest !== null && age() > latest.old_s;
  const tell = () => {
    show(at("old"), stale() ? `What is shown is ${span(age())} old: the loop, or the way to it, stands still.` : "");
    drawButtons();
  };

  // ---- the server -----------------------------------------------------------------------------

  const bearer = () => ({ Authorization: `Bearer ${sessionStorage.getItem(KEY) || ""}` });
  const sentence = async (answer) => {
    try { return (await answer.json()).error || `the server answers ${answer.status}`; }
    catch { return `the server answers ${answer.status}`; }
  };

  const forget = (why) => {
    sessionStorage.removeItem(KEY);
    listening?.abort();
    latest = null;
    at("data").hidden = at("facts").hidden = true;
    at("warnings").replaceChildren();
    show(at("old"), "");
    at("headline").textContent = "Not connected";
    document.title = "Trimtab";
    at("ask").hidden = false;
    at("refused").textContent = why;
    at("said").textContent = "";
    at("token").value = "";
    at("token").focus();
  };

  const hear = (block) => {
    const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
    if (!data) return;
    const message = JSON.parse(data);
    if (message.status) drawAll(message);
    else if (latest) { latest.age_s = message.age_s; heardMs = performance.now(); tell(); }
  };

  const listen = async (end) => {
    const answer = await fetch("events", { headers: bearer(), signal: end.signal, cache: "no-store" });
    if (answer.status === 401) { forget(await sentence(answer)); return; }
    if (!answer.ok) throw new Error(await sentence(answer));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value: piece, done } = await reader.read();
      if (done) return;
      const blocks = (text + piece).split("\n\n");
      text = blocks.pop();
      blocks.forEach(hear);
    }
  };

  const connect = async () => {
    const end = listening = new AbortController();
    while (!end.signal.aborted) {
      try { await listen(end); }
      catch (problem) {
        if (end.signal.aborted) return;
        if (!latest) at("refused").textContent = `No answer: ${problem.message}; trying again.`;
      }
      await new Promise((done) => setTimeout(done, 2000));
    }
  };

  const command = async (name) => {
    busy = true;
    drawButtons();
    at("said").className = "";
    at("said").textContent = `${name} …`;
    const body = { by: "page", ...(name === "approve" ? { key: latest.status.proposal.key } : {}) };
    try {
      const answer = await fetch(name, {
        method: "POST", headers: { ...bearer(), "Content-Type": "application/json" }, body: JSON.stringify(body),
      });
      if (!answer.ok) throw new Error(await sentence(answer));
      at("said").textContent = `${name}: ${(await answer.json()).done}`;
    } catch (problem) {
      at("said").className = "bad";
      at("said").textContent = `${name}: ${problem.message}`;
    }
    busy = false;
    drawButtons();
  };

  for (const button of document.querySelectorAll("[data-act]"))
    button.addEventListener("click", () => command(button.dataset.act));
  at("forget").addEventListener("click", () => forget(""));
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, at("token").value.trim());
    at("token").value = "";
    at("refused").textContent = "";
    listening?.abort();
    connect();
  });
  setInterval(() => { if (latest) tell(); }, 1000);
  if (sessionStorage.getItem(KEY)) connect();
  else at("token").focus();
})();
