import{Et as e,G as t,K as n,L as r,Rt as i,Ut as a,Vt as o,Wt as s,q as c,zt as l}from"./bascule.js";var u=new Set([`$$slots`,`$$events`,`$$legacy`,`draft`,`path`,`label`,`rows`,`readonly`]);function d(d,f){s(f,!0);let p=t(f,`rows`,3,4),m=t(f,`readonly`,3,!1),h=n(f,u),g=o(()=>{let e=f.draft.at(f.path);return Array.isArray(e)?e.map(String):[]}),_=l(null),v=o(()=>e(_)!==null&&y(e(_)).join(`
`)===e(g).join(`
`)?e(_):e(g).join(`
`));function y(e){return e===``?[]:e.replace(/\n$/,``).split(`
`)}function b(e){i(_,e,!0);let t=y(e);f.draft.set(f.path,t.length?t:void 0)}{let t=o(()=>f.draft.problems.get(f.path));r(d,c({get label(){return f.label},get value(){return e(v)},get rows(){return p()},mono:!0,get readonly(){return m()}},()=>h,{get problems(){return e(t)},onchange:b}))}a()}export{d as t};