"use strict";
// Lets people choose other classes for photos, and download what they chose.
{
  const photos = [...document.querySelectorAll("li[data-path]")];
  const classes = [...document.querySelectorAll("#classes option")];
  const bar = document.getElementById("corrections");
  // Photos that were asked for have no label yet.
  const asks = "asks" in bar.dataset;
  // The path of a photo to {label}, or to {} for one that is left out.
  const chosen = new Map();
  let isSaved = true;

  const rows = {
    "relabel.csv": () => [
      ["path", "label"],
      ...[...chosen].filter(([, to]) => "label" in to).map(([path, to]) => [path, to.label]),
    ],
    "without.csv": () => [
      ["path"],
      ...[...chosen].filter(([, to]) => !("label" in to)).map(([path]) => [path]),
    ],
  };

  const choices = () => {
    const select = document.createElement("select");
    const add = (text, to) => {
      const option = new Option(text);
      option.to = to;
      select.add(option);
    };
    add(asks ? "no label" : "as it is", null);
    for (const { textContent } of classes) add(textContent, { label: textContent });
    if (!asks) {
      add("not sure", {});
      add("remove", {});
    }
    return select;
  };

  const show = () => {
    for (const photo of photos) {
      photo.classList.toggle("corrected", chosen.has(photo.dataset.path));
    }
    for (const button of bar.querySelectorAll("button")) {
      button.disabled = rows[button.dataset.file]().length === 1;
    }
    bar.hidden = !chosen.size;
    const done = asks ? "labelled" : "corrected";
    bar.querySelector("output").textContent =
      chosen.size === 1 ? `1 photo ${done}.` : `${chosen.size} photos ${done}.`;
  };

  const choose = (photo) => {
    const select = choices();
    select.setAttribute("aria-label", `The class of ${photo.dataset.path}`);
    select.addEventListener("change", () => {
      const { to } = select.selectedOptions[0];
      if (to) chosen.set(photo.dataset.path, to);
      else chosen.delete(photo.dataset.path);
      isSaved = false;
      show();
    });
    return select;
  };

  for (const photo of photos) {
    const place = document.createElement("p");
    place.className = "correct-it";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = asks ? "Label" : "Change class";
    button.addEventListener("click", () => {
      const select = choose(photo);
      button.replaceWith(select);
      select.focus();
    });
    place.append(button);
    photo.querySelector("figcaption").append(place);
  }

  for (const button of bar.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
      const lines = rows[button.dataset.file]().map((row) => `${row.map(cell).join(",")}\n`);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
      link.download = button.dataset.file;
      isSaved = true;
      link.click();
    });
  }

  addEventListener("beforeunload", (event) => {
    if (chosen.size && !isSaved) event.preventDefault();
  });
}
