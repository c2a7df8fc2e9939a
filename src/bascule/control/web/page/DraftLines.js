import{B as e,Bt as t,Ft as n,H as r,Lt as i,M as a,Pt as o,V as s,xt as c,zt as l}from"./bascule.js";var u=new Set([`$$slots`,`$$events`,`$$legacy`,`draft`,`path`,`label`,`rows`,`readonly`]);function d(d,f){t(f,!0);let p=e(f,`rows`,3,4),m=e(f,`readonly`,3,!1),h=s(f,u),g=i(()=>{let e=f.draft.at(f.path);return Array.isArray(e)?e.map(String):[]}),_=n(null),v=i(()=>c(_)!==null&&y(c(_)).join(`
`)===c(g).join(`
`)?c(_):c(g).join(`
`));function y(e){return e===``?[]:e.replace(/\n$/,``).split(`
`)}function b(e){o(_,e,!0);let t=y(e);f.draft.set(f.path,t.length?t:void 0)}{let e=i(()=>f.draft.problems.get(f.path));a(d,r({get label(){return f.label},get value(){return c(v)},get rows(){return p()},mono:!0,get readonly(){return m()}},()=>h,{get problems(){return c(e)},onchange:b}))}l()}export{d as t};