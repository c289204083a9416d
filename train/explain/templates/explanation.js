"use strict";
// Lays the attention for the answer, or of a layer and head, over its photo.
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const colors = bytes(document.querySelector("main").dataset.colors);
for (const viewer of document.querySelectorAll(".viewer[data-maps]")) {
  const [layers, heads, rows, columns] = ["layers", "heads", "rows", "columns"].map(
    (name) => Number(viewer.dataset[name]),
  );
  const [answer, maps] = [viewer.dataset.answer, viewer.dataset.maps].map(bytes);
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  viewer.querySelector(".stage").append(canvas);
  const [layer, head] = ["layer", "head"].map((name) => ({
    slider: viewer.querySelector(`input.${name}`),
    output: viewer.querySelector(`output.${name}`),
  }));
  const show = () => {
    const [l, h] = [layer, head].map(({ slider }) => Number(slider.value));
    canvas.hidden = !l && !answer.length;
    head.slider.disabled = !l;
    const none = answer.length ? "for the class" : "none";
    layer.output.value = l ? `${l} of ${layers}` : none;
    head.output.value = l && h ? `${h} of ${heads}` : `mean of all ${heads}`;
    if (canvas.hidden) return;
    // The mean over the heads comes before them.
    const start = l ? ((l - 1) * (heads + 1) + h) * rows * columns : 0;
    const map = l ? maps : answer;
    const image = new ImageData(columns, rows);
    for (let place = 0; place < rows * columns; place++) {
      const color = 4 * map[start + place];
      image.data.set(colors.subarray(color, color + 4), 4 * place);
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
  layer.slider.addEventListener("input", show);
  head.slider.addEventListener("input", show);
  viewer.querySelector(".controls").hidden = false;
  show();
}
