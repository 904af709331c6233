// A box above the table of all hooks and above that of all keys: only rows that hold its words stay.
document.addEventListener("DOMContentLoaded", () => {
  for (const heading of document.querySelectorAll("#all-hooks, #all-keys")) {
    const table = heading.parentElement.querySelector(`#${heading.id} ~ * table, #${heading.id} ~ table`);
    if (!table) continue;
    const box = document.createElement("input");
    box.type = "search";
    box.placeholder = "Search this table";
    box.className = "table-search";
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(/\s+/);
      for (const row of table.tBodies[0].rows) {
        row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
      }
    });
    heading.after(box);
  }
});
