// What is wider than its column scrolls within itself; while something is left on the right, that edge fades out.
document.addEventListener("DOMContentLoaded", () => {
  const mark = (box) => box.toggleAttribute("data-more", box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
  const resized = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
  const pictures = [...document.querySelectorAll("article p > img")].map((picture) => picture.parentElement);
  for (const box of [...document.querySelectorAll("article pre, article .table-wrapper"), ...pictures]) {
    box.addEventListener("scroll", () => mark(box), { passive: true });
    resized.observe(box);
  }
});
