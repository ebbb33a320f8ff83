#include "protocol/xa.h"

namespace twofold {

std::string_view name(Xa code) {
  switch (code) {
    case Xa::ok: return "XA_OK";
    case Xa::rdonly: return "XA_RDONLY";
    case Xa::retry: return "XA_RETRY";
    case Xa::heurmix: return "XA_HEURMIX";
    case Xa::heurrb: return "XA_HEURRB";
    case Xa::heurcom: return "XA_HEURCOM";
    case Xa::heurhaz: return "XA_HEURHAZ";
    case Xa::nomigrate: return "XA_NOMIGRATE";
    case Xa::rbrollback: return "XA_RBROLLBACK";
    case Xa::rbcommfail: return "XA_RBCOMMFAIL";
    case Xa::rbdeadlock: return "XA_RBDEADLOCK";
    case Xa::rbintegrity: return "XA_RBINTEGRITY";
    case Xa::rbother: return "XA_RBOTHER";
    case Xa::rbproto: return "XA_RBPROTO";
    case Xa::rbtimeout: return "XA_RBTIMEOUT";
    case Xa::rbtransient: return "XA_RBTRANSIENT";
    case Xa::er_async: return "XAER_ASYNC";
    case Xa::er_rmerr: return "XAER_RMERR";
    case Xa::er_nota: return "XAER_NOTA";
    case Xa::er_inval: return "XAER_INVAL";
    case Xa::er_proto: return "XAER_PROTO";
    case Xa::er_rmfail: return "XAER_RMFAIL";
    case Xa::er_dupid: return "XAER_DUPID";
    case Xa::er_outside: return "XAER_OUTSIDE";
  }
  return "XA_UNKNOWN";
}

}  // namespace twofold
