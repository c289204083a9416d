"use strict";
// Sorts a table by the column whose title is clicked, a second time the other way.
for (const table of document.querySelectorAll("table.sortable")) {
  const [body] = table.tBodies;
  const titles = [...table.tHead.rows[0].cells];
  const number = (text) => Number(text.replace(/[,%]/g, ""));
  titles.forEach((title, column) => {
    const isNumber = title.classList.contains("number");
    const button = document.createElement("button");
    button.type = "button";
    button.append(...title.childNodes);
    title.append(button);
    button.addEventListener("click", () => {
      const wasFirst = title.getAttribute("aria-sort") === "ascending";
      for (const other of titles) other.removeAttribute("aria-sort");
      title.setAttribute("aria-sort", wasFirst ? "descending" : "ascending");
      const order = (one, other) => {
        const [a, b] = [one, other].map((row) => row.cells[column].textContent);
        const found = isNumber
          ? number(a) - number(b)
          : a.localeCompare(b, undefined, { numeric: true });
        return wasFirst ? -found : found;
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}
