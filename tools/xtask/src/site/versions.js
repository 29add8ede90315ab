// Lets readers choose the version of the documents. Each version has a folder of its own; versions.js, beside these folders, names them.
(function () {
    "use strict";
    const buttons = document.querySelector(".right-buttons");
    const root = typeof path_to_root === "string" ? path_to_root : "";
    if (!buttons) {
        return;
    }
    const list = document.createElement("script");
    list.src = root + "../versions.js";
    list.onload = function () {
        const own = document.querySelector("meta[name=documents-version]");
        const current = own ? own.content : "";
        const select = document.createElement("select");
        select.setAttribute("aria-label", "Version");
        for (const version of window.documentsVersions || []) {
            const option = document.createElement("option");
            option.value = option.textContent = version;
            option.selected = version === current;
            select.appendChild(option);
        }
        select.onchange = function () {
            const book = new URL(root || "./", window.location.href);
            const page = window.location.href.slice(book.href.length);
            const other = new URL("../" + select.value + "/", book);
            // A page that the other version does not have: its first page.
            fetch(new URL(page, other), { method: "HEAD" })
                .then((found) => (found.ok ? page : ""), () => "index.html")
                .then((found) => { window.location.href = new URL(found, other).href; });
        };
        buttons.prepend(select);
    };
    document.head.appendChild(list);
})();
