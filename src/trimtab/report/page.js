(() => {
  "use strict";
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const root = document.documentElement;
  const hidden = new Set();

  // Colours are written as "@name" and stand in the style sheet, once for light and once for dark.
  const paint = (value, key, styles) => {
    if (Array.isArray(value)) return value.map((item) => paint(item, key, styles));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, paint(v, k, styles)]));
    if (typeof value === "string" && value[0] === "@" && /color$/.test(key))
      return styles.getPropertyValue("--" + value.slice(1)).trim();
    return value;
  };

  const axis = {
    gridcolor: "@grid", zeroline: false, linecolor: "@edge", tickcolor: "@edge", automargin: true,
    ticks: "outside", ticklen: 4, tickfont: { size: 12 }, title: { font: { size: 12.5 }, standoff: 8 },
  };

  const layoutOf = (chart, styles) => {
    const layout = {
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: "@ink" },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 48, r: 12, t: 26, b: 44 }, showlegend: false, height: chart.height,
      hoverlabel: { bgcolor: "@panel", bordercolor: "@edge", font: { color: "@ink", size: 12.5 }, align: "left", namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "@muted", activecolor: "@ink" },
      hovermode: "closest", dragmode: "zoom", ...structuredClone(chart.layout),
    };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
      const own = layout[name];
      layout[name] = { ...axis, ...own, title: { ...axis.title, ...(own.title || {}) } };
      if (name[0] === "y") layout[name] = { linecolor: "rgba(0,0,0,0)", ...layout[name], ticks: "" };
    }
    return paint(layout, "", styles);
  };

  const draw = () => {
    const styles = getComputedStyle(root);
    return Promise.all(charts.map((chart) => {
      const data = paint(structuredClone(chart.data), "", styles);
      for (const trace of data) if (hidden.has(trace.meta?.line)) trace.visible = false;
      return Plotly.react(chart.id, data, layoutOf(chart, styles), {
        responsive: true, displaylogo: false, displayModeBar: "hover",
        modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], // none that could send data away
        toImageButtonOptions: { filename: chart.id, scale: 2 },
      });
    }));
  };

  for (const button of document.querySelectorAll(".key button"))
    button.addEventListener("click", () => {
      const line = Number(button.dataset.line);
      if (!hidden.delete(line)) hidden.add(line);
      button.setAttribute("aria-pressed", String(!hidden.has(line)));
      draw();
    });

  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.addEventListener("beforeprint", () => { root.dataset.print = "yes"; draw(); });
  window.addEventListener("afterprint", () => { delete root.dataset.print; draw(); });
  draw().then(() => { root.dataset.drawn = "yes"; });
})();
