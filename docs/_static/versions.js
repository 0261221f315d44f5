// The version switch: go to the first page of the chosen version. Its list is part of the page, so it works offline.
document.addEventListener("DOMContentLoaded", () => {
  const choice = document.getElementById("version-switch");
  if (choice) {
    choice.addEventListener("change", () => {
      window.location.href = choice.dataset.root + choice.value + "/index.html";
    });
  }
});
