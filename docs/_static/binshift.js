// Names each cell of a table by its column, for phones, on which a row is a card (binshift.css).
document.addEventListener("DOMContentLoaded", function () {
  "use strict";
  document.querySelectorAll("article table").forEach(function (table) {
    const columns = Array.from(table.querySelectorAll("thead th"), (head) => head.textContent.trim());
    table.querySelectorAll("tbody tr").forEach(function (row) {
      Array.from(row.children).forEach(function (cell, i) {
        if (!cell.textContent.trim() && !cell.querySelector("img, svg")) cell.classList.add("nothing");
        // The first cell is the title of the card.
        else if (i > 0 && columns[i]) cell.dataset.column = columns[i];
      });
    });
  });
});
