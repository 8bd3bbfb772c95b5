"use strict";
(function () {
  var narrow = window.matchMedia("(max-width: 640px)").matches;
  var figures = JSON.parse(document.getElementById("figures").textContent);
  var options = {
    responsive: true,
    displaylogo: false,
    displayModeBar: narrow ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    showSendToCloud: false,
    plotlyServerURL: ""
  };
  figures.forEach(function (figure) {
    var layout = figure.layout;
    if (narrow) {
      layout.font.size = 11;
      layout.margin.l = 40;
      layout.margin.r = 8;
      layout.dragmode = false;
      figure.traces.forEach(function (trace) {
        if (trace.colorbar) {
          trace.colorbar.orientation = "h";
          trace.colorbar.y = 1.16;
          trace.colorbar.yanchor = "bottom";
          trace.colorbar.title.side = "top";
        }
      });
    }
    Plotly.newPlot(figure.id, figure.traces, layout, options);
  });
  var printing = [];
  function resize(width) {
    figures.forEach(function (figure) {
      Plotly.relayout(figure.id, width ? { width: width, autosize: false } : { width: null, autosize: true });
    });
  }
  window.addEventListener("beforeprint", function () {
    printing = Array.prototype.filter.call(document.querySelectorAll("details"), function (each) {
      return !each.open;
    });
    printing.forEach(function (each) { each.open = true; });
    resize(660);
  });
  window.addEventListener("afterprint", function () {
    printing.forEach(function (each) { each.open = false; });
    resize(0);
  });
  document.documentElement.dataset.drawn = String(figures.length);
})();
