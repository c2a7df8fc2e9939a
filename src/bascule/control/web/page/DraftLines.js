import{B as e,Bt as t,Ft as n,H as r,It as i,M as a,Rt as o,St as s,V as c,Vt as l}from"./bascule.js";var u=new Set([`$$slots`,`$$events`,`$$legacy`,`draft`,`path`,`label`,`rows`,`readonly`]);function d(d,f){l(f,!0);let p=e(f,`rows`,3,4),m=e(f,`readonly`,3,!1),h=c(f,u),g=o(()=>{let e=f.draft.at(f.path);return Array.isArray(e)?e.map(String):[]}),_=i(null),v=o(()=>s(_)!==null&&y(s(_)).join(`
`)===s(g).join(`
`)?s(_):s(g).join(`
`));function y(e){return e===``?[]:e.replace(/\n$/,``).split(`
`)}function b(e){n(_,e,!0);let t=y(e);f.draft.set(f.path,t.length?t:void 0)}{let e=o(()=>f.draft.problems.get(f.path));a(d,r({get label(){return f.label},get value(){return s(v)},get rows(){return p()},mono:!0,get readonly(){return m()}},()=>h,{get problems(){return s(e)},onchange:b}))}t()}export{d as t};