import{Bt as e,Dt as t,Gt as n,Ht as r,J as i,K as a,R as o,Wt as s,q as c,zt as l}from"./bascule.js";var u=new Set([`$$slots`,`$$events`,`$$legacy`,`draft`,`path`,`label`,`otherwise`,`rows`,`readonly`]);function d(d,f){n(f,!0);let p=a(f,`rows`,3,4),m=a(f,`readonly`,3,!1),h=c(f,u),g=r(()=>{let e=f.draft.at(f.path);return Array.isArray(e)?e.map(String):[...f.otherwise??[]]}),_=e(null),v=r(()=>t(_)!==null&&y(t(_)).join(`
`)===t(g).join(`
`)?t(_):t(g).join(`
`));function y(e){return e===``?[]:e.replace(/\n$/,``).split(`
`)}function b(e){l(_,e,!0);let t=y(e);f.draft.set(f.path,t.join(`
`)===(f.otherwise??[]).join(`
`)?void 0:t)}{let e=r(()=>f.draft.problems.get(f.path));o(d,i({get label(){return f.label},get value(){return t(v)},get rows(){return p()},mono:!0,get readonly(){return m()}},()=>h,{get problems(){return t(e)},onchange:b}))}s()}export{d as t};