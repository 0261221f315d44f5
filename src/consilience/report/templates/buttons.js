(function () {
  var root = document.documentElement, theme = document.getElementById("theme"), copy = document.getElementById("copy");
  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function label() { theme.textContent = dark() ? "Light" : "Dark"; }
  theme.hidden = false;
  label();
  theme.addEventListener("click", function () {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("consilience-theme", root.dataset.theme); } catch (error) { /* forgotten, then */ }
    label();
  });
  if (copy) {
    copy.hidden = false;
    copy.addEventListener("click", function () {
      var command = document.getElementById("command");
      function done() { copy.textContent = "Copied"; setTimeout(function () { copy.textContent = "Copy"; }, 1600); }
      function select() {
        getSelection().selectAllChildren(command);
        copy.textContent = "Selected";
      }
      if (navigator.clipboard) navigator.clipboard.writeText(command.textContent).then(done, select); else select();
    });
  }
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (one) { one.open = true; });
  });
})();
