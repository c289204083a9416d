"use strict";
// Lays the attention of a layer and head over its photo: dark where it is little.
for (const viewer of document.querySelectorAll(".viewer[data-maps]")) {
  const [layers, heads, rows, columns] = ["layers", "heads", "rows", "columns"].map(
    (name) => Number(viewer.dataset[name]),
  );
  const maps = Uint8Array.from(atob(viewer.dataset.maps), (c) => c.charCodeAt(0));
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
    canvas.hidden = !l;
    head.slider.disabled = !l;
    layer.output.value = l ? `${l} of ${layers}` : "none";
    head.output.value = h ? `${h} of ${heads}` : `mean of all ${heads}`;
    if (!l) return;
    // The mean over the heads comes before them.
    const start = ((l - 1) * (heads + 1) + h) * rows * columns;
    const image = new ImageData(columns, rows);
    for (let place = 0; place < rows * columns; place++) {
      image.data[4 * place + 3] = 0.9 * (255 - maps[start + place]);
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
  layer.slider.addEventListener("input", show);
  head.slider.addEventListener("input", show);
  viewer.querySelector(".controls").hidden = false;
  show();
}
