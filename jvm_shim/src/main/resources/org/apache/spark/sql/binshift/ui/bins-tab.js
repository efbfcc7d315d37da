// Keeps the tab "Bins" as the queries are, without a reload. Every two seconds it asks its own page for the part that changes.
(function () {
  "use strict";
  const intervalMs = 2000;
  const patienceMs = 10000;
  const updated = document.getElementById("binshift-updated");
  let lastUpdate = new Date();
  let timer = null;
  let isAsking = false;

  // The column by which the user has sorted a table, of each table in the order of the page.
  function sorting(part) {
    return Array.from(part.querySelectorAll("table.sortable"), function (table) {
      const heads = Array.from(table.querySelectorAll("thead th"));
      const column = heads.findIndex((head) => /sorttable_sorted/.test(head.className));
      return {column: column, isReverse: column >= 0 && /sorttable_sorted_reverse/.test(heads[column].className)};
    });
  }

  // Spark's sorttable.js has looked at the tables that were there when the page came, and at no other ones.
  function sortAgain(part, sorted) {
    if (typeof sorttable === "undefined") return;
    part.querySelectorAll("table.sortable").forEach(function (table, i) {
      sorttable.makeSortable(table);
      const head = sorted[i] && sorted[i].column >= 0 && table.querySelectorAll("thead th")[sorted[i].column];
      if (head) {
        head.click();
        if (sorted[i].isReverse) head.click();
      }
    });
  }

  function isSelecting(part) {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  }

  async function ask() {
    // The path as the browser has it, so that a proxy between finds the page as it found this one.
    const answer = await fetch(location.pathname + "?part=queries",
      {credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(patienceMs)});
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const part = page.getElementById("binshift-queries");
    if (!answer.ok || !part) throw new Error("HTTP " + answer.status);
    return part;
  }

  async function refresh() {
    if (isAsking) return;
    isAsking = true;
    clearTimeout(timer);
    const old = document.getElementById("binshift-queries");
    // A page that nobody looks at makes no requests, and a selection that somebody is copying isn't replaced.
    if (!document.hidden && !isSelecting(old)) {
      try {
        const part = document.importNode(await ask(), true);
        const sorted = sorting(old);
        old.replaceWith(part);
        sortAgain(part, sorted);
        lastUpdate = new Date();
        updated.textContent = "Updated at " + lastUpdate.toLocaleTimeString();
      } catch (error) {
        updated.textContent = "The driver has not answered since " + lastUpdate.toLocaleTimeString() + "; trying again";
      }
    }
    isAsking = false;
    timer = setTimeout(refresh, intervalMs);
  }

  document.addEventListener("visibilitychange", function () {
    if (!document.hidden) refresh();
  });
  timer = setTimeout(refresh, intervalMs);
})();
